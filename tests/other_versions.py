"""Unit tests and notebooks once more, on the lowest versions allowed, and on the newest Python of this machine.

python other_versions.py
"""

import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parent.parent
RUN = ["-m", "pytest", "-q", "-m", "not browser", "--numprocesses=2", "--dist=loadfile", "--disable-warnings"]
# What takes long, and no library's version decides.
RUN += ["--deselect=tests/test_live.py::test_four_thousand_redraws_leave_nothing_behind"]
RUN += [f"--ignore=tests/test_{name}.py" for name in ("notebooks", "play", "setup")]


def lowest():
    """The lowest version that pyproject.toml allows of each package, as pip's constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    return [re.sub(r"^([\w.-]+)\s*>=([\w.]+).*", r"\1==\2", requirement) for requirement in wanted]


def newest():
    """The newest Python of this machine that is newer than the one that runs this, or None."""
    names = [which(f"python3.{minor}") for minor in range(12, 30)]
    names += Path.home().glob(".pyenv/versions/3.*/bin/python3")
    found = {version(name): name for name in filter(None, names)}
    return found[max(found)] if found and max(found) > sys.version_info[:3] else None


def version(python):
    """A Python's version; (0,) of what does not run, as a shim may not."""
    asked = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3])"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return tuple(map(int, asked.stdout.split())) or (0,)


def installed(name, python, constraints):
    """An environment with the course and its tests; gives its Python."""
    environment = ROOT / f".venv-{name}"
    subprocess.run([python, "-m", "venv", "--clear", environment], check=True)
    inside = next(path for path in (environment / "bin/python", environment / "Scripts/python.exe") if path.exists())
    command = [inside, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*command, "-c", constraints, "-e", ".[test,lecture]"], cwd=ROOT, check=True)
    return inside


def main():
    bounds = ROOT / ".venv" / "lowest.txt"
    bounds.write_text("\n".join(lowest()))
    wanted = [("lowest", sys.executable, bounds)]
    if python := newest():
        wanted.append(("newest", python, ROOT / "constraints.txt"))
    else:
        print(f"no Python newer than {sys.version.split()[0]} was found")
    with ThreadPoolExecutor() as pool:
        made = list(pool.map(lambda each: installed(*each), wanted))
    failed = False
    for (name, *_), inside in zip(wanted, made, strict=True):
        where = ".".join(map(str, version(inside)))
        print(f"{name}: Python {where}, {' '.join(lowest()) if name == 'lowest' else 'constraints.txt'}", flush=True)
        failed |= bool(subprocess.run([inside, *RUN], cwd=ROOT, check=False).returncode)
    sys.exit(failed)


if __name__ == "__main__":
    main()
