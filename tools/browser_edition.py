"""Build the browser edition: a folder of files that any web server can serve, with the whole course and its Python.

python tools/browser_edition.py [folder]             build it; "site" beside this folder, if none is named
python tools/browser_edition.py --serve [folder]     show a built one on this machine

WHEELS names a folder with Pyodide's compiled wheels; where it names none they are fetched, as tools/browser/lock.json
says. What was fetched is kept in .venv, so that the next build needs no network.
"""

import functools
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BROWSER = ROOT / "tools" / "browser"
LOCK = json.loads((BROWSER / "lock.json").read_text())
FETCHED = ROOT / ".venv" / "fetched"
SITE = ROOT / "site"
EXTENSIONS = Path(sys.prefix, "share", "jupyter", "labextensions")
ASIDE = Path(sys.prefix, "lite", "@jupyterlite")  # see the Makefile
KERNEL = (ASIDE if ASIDE.exists() else EXTENSIONS / "@jupyterlite") / "pyodide-kernel-extension"
RUNTIME = ("pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide.mjs", "pyodide-lock.json", "python_stdlib.zip")
APPS = ("notebooks", "lab", "tree", "edit")
PLUGIN = "@jupyterlite/pyodide-kernel-extension:kernel"
LOADING = "Loading JupyterLite..."
DATE = 1767225600  # of every file in the site, the start of 2026, so that two builds are the same
UNWANTED = shutil.ignore_patterns("progress*", ".ipynb_checkpoints", "__pycache__")
# What Pyodide's list lacks, and what each needs of it.
ADDED = {
    "comm": ["traitlets"],
    "ipykernel": ["pyodide-kernel"],
    "ipywidgets": ["comm", "ipython", "traitlets"],
    "piplite": ["micropip"],
    "pyodide-kernel": ["comm", "ipython"],
    "qkvlib": ["ipywidgets", "matplotlib"],
}
# What matplotlib needs for PDF and time zones, and the course does not.
UNUSED = {"fonttools", "pytz"}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checked(path, expected):
    """The path, if the file is there and is what it should be; else the build ends with its name."""
    if not path.exists():
        sys.exit(f"{path.name}: not found in {path.parent}")
    if (found := sha256(path)) != expected:
        sys.exit(f"{path.name}: expected sha256 {expected}, got {found}")
    return path


def run(*command, **options):
    if not shutil.which(command[0]):
        sys.exit(f"{command[0]}: not found; the browser edition is built with Node.js and its npm")
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def fetch(wheels):
    """Every file of the lock, checked: paths of the runtime's archive, and of all wheels."""
    FETCHED.mkdir(parents=True, exist_ok=True)
    ((archive, archive_sha),) = LOCK["npm"].items()
    if not (FETCHED / archive).exists():
        run("npm", "pack", re.sub(r"-([\d.]+)\.tgz", r"@\1", archive), cwd=FETCHED)
    missing = [name.split("-")[:2] for name in LOCK["pure"] if not (FETCHED / name).exists()]
    if missing:
        run(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--platform=any",
            "--implementation=py", "--abi=none", "--python-version=3.14", "--dest", FETCHED,
            *("==".join(spec) for spec in missing))  # fmt: skip
    for name in LOCK["compiled"]:
        if not wheels and not (FETCHED / name).exists():
            try:
                with urllib.request.urlopen(LOCK["distribution"] + name) as found:
                    (FETCHED / name).write_bytes(found.read())
            except OSError as error:
                sys.exit(f"{name}: could not be fetched from {LOCK['distribution']}: {error}")
    packages = [checked(FETCHED / name, expected) for name, expected in LOCK["pure"].items()]
    packages += [checked(Path(wheels or FETCHED, name), expected) for name, expected in LOCK["compiled"].items()]
    return checked(FETCHED / archive, archive_sha), packages


def own_wheel(folder):
    """qkvlib as a wheel, with the solutions in it, since a kernel may be unable to reach any other file."""
    source, ignored = folder / "source", shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    shutil.copytree(ROOT / "qkvlib", source / "qkvlib", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    if (ROOT / "solutions").exists():
        shutil.copytree(ROOT / "solutions", source / "qkvlib" / "solutions", ignore=ignored)
    for path in source.glob("qkvlib/solutions/*.ipynb"):
        path.write_text(json.dumps(without_outputs(json.loads(path.read_text("utf-8")))), "utf-8")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return next(folder.glob("*.whl"))


def without_outputs(notebook):
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
    return notebook


def install(archive, packages, target):
    """Pyodide and its packages, as bytecode, with the list of packages that Pyodide reads."""
    target.mkdir()
    with tarfile.open(archive) as tar:
        for file in RUNTIME:
            (target / file).write_bytes(tar.extractfile(f"package/{file}").read())
    for path in packages:
        shutil.copyfile(path, target / path.name)
    run("node", BROWSER / "compile.mjs", target / "pyodide.mjs", target)
    listed = json.loads((target / "pyodide-lock.json").read_text())
    known = listed["packages"]
    listed["packages"] = {name(path): entry(target / path.name, known) for path in sorted(packages, key=name)}
    (target / "pyodide-lock.json").write_text(json.dumps(listed, indent=1))


def name(wheel):
    return wheel.name.split("-")[0].replace("_", "-").lower()


def entry(wheel, known):
    """What Pyodide's list says of a package, with what there is of it here."""
    module, version = wheel.name.split("-")[:2]
    new = {"name": name(wheel), "imports": [module], "install_dir": "site", "package_type": "package"}
    said = known.get(name(wheel), new)
    needs = ADDED.get(name(wheel)) or [other for other in said["depends"] if other not in UNUSED]
    return said | {"version": version, "file_name": wheel.name, "sha256": sha256(wheel), "depends": needs,
                   "unvendored_tests": False}  # fmt: skip


def digest(folder):
    """A name for the contents of a folder: another one as soon as a byte in it is another one."""
    return hashlib.sha256("".join(f"{path.name} {sha256(path)} " for path in sorted(folder.iterdir())).encode())


def lite(folder, settings, out):
    """JupyterLite with the notebooks and solutions."""
    shutil.copytree(ROOT / "notebooks", folder / "contents" / "notebooks", ignore=UNWANTED)
    if (ROOT / "solutions").exists():
        shutil.copytree(ROOT / "solutions", folder / "contents" / "solutions", ignore=UNWANTED)
    for path in (folder / "contents").rglob("*"):
        os.utime(path, (DATE, DATE))
    (folder / "jupyter-lite.json").write_text(json.dumps(settings))
    shutil.copy(BROWSER / "overrides.json", folder)
    extensions = (EXTENSIONS / "@jupyter-widgets" / "jupyterlab-manager", KERNEL, BROWSER / "course")
    run(sys.executable, "-m", "jupyterlite_core", "build", "--lite-dir", folder, "--output-dir", out,
        "--contents", folder / "contents", *(f"--apps={app}" for app in APPS), "--no-sourcemaps",
        "--no-unused-shared-packages", "--no-libarchive", "--ignore-sys-prefix", f"--source-date-epoch={DATE}",
        *(f"--LiteBuildConfig.federated_extensions={path}" for path in extensions), cwd=folder)  # fmt: skip


def finish(out):
    """What JupyterLite leaves to do: the first page, words while it loads, and icons that it asks for."""
    shutil.copy(BROWSER / "index.html", out)
    page = out / "notebooks" / "index.html"
    text = page.read_text()
    assert LOADING in text
    page.write_text(text.replace(LOADING, "Loading the course"))
    for pattern in ("fa-*.svg", "fa-*.eot"):  # which only browsers of before 2014 ask for
        for path in (out / "build").glob(pattern):
            path.unlink()
    icons = out / "static" / "favicons"
    icons.mkdir()
    for name in ("favicon", "favicon-notebook", "favicon-busy-1", "favicon-busy-2", "favicon-busy-3"):
        shutil.copyfile(out / "lab" / "favicon.ico", icons / f"{name}.ico")


def build(out, wheels):
    archive, packages = fetch(wheels)
    settings = json.loads((BROWSER / "jupyter-lite.json").read_text())
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        packages += [own_wheel(folder), *(path for path in sorted((KERNEL / "static" / "pypi").glob("*.whl"))
                                          if not path.name.startswith("widgetsnbextension"))]  # fmt: skip
        install(archive, packages, folder / "python")
        # Another name for other contents: what a browser has kept of an older build never meets the new one.
        place = f"static/python-{digest(folder / 'python').hexdigest()[:12]}"
        settings["jupyter-config-data"]["litePluginSettings"][PLUGIN]["pyodideUrl"] = f"./{place}/pyodide.mjs"
        (folder / "lite").mkdir()
        lite(folder / "lite", settings, folder / "site")
        shutil.copytree(folder / "python", folder / "site" / place)
        finish(folder / "site")
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(folder / "site", out)
    sizes = file_sizes(out)
    print(f"{out}: {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB. Show it with: make serve")


def file_sizes(folder):
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]


class Handler(http.server.SimpleHTTPRequestHandler):
    # What else a machine's registry says of them may keep a browser from running them.
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {
        ".wasm": "application/wasm", ".mjs": "text/javascript", ".js": "text/javascript"}  # fmt: skip

    def log_message(self, *arguments):
        pass


def server(out, port, handler=Handler):
    """A web server for a built site, on this machine only; port 0 stands for any that is free."""
    if not (out / "index.html").exists():
        sys.exit(f"{out}: not built yet; run make site")
    return http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(handler, directory=out))


def serve(out):
    with server(out, 8000) as running:
        print(f"The course is at http://127.0.0.1:{running.server_port}/ until you press Ctrl + C.")
        running.serve_forever()


if __name__ == "__main__":
    folder = Path(*[name for name in sys.argv[1:] if not name.startswith("--")] or [SITE]).resolve()
    serve(folder) if "--serve" in sys.argv else build(folder, os.environ.get("WHEELS"))
