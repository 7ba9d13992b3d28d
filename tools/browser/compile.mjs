// node compile.mjs FOLDER/pyodide.mjs FOLDER...: turn the modules in wheels and zips into bytecode, by Pyodide's own
// Python. A browser takes half of a start to compile them, at every start.
const [runtime, ...folders] = process.argv.slice(2);
const {loadPyodide} = await import(runtime);
const python = await loadPyodide();
for (const folder of folders) {
  python.FS.mkdirTree('/archives');
  python.FS.mount(python.FS.filesystems.NODEFS, {root: folder}, '/archives');
  await python.runPythonAsync(`
import importlib._bootstrap_external as bootstrap
import re
import warnings
import zipfile
from pathlib import Path

# What no notebook here uses.
unused = re.compile(
    "/tests/|/sample_data/|/django-stubs/|/fonts/(afm|pdfcorefonts)/|^numpy/(f2py|_core/include)/"
)
# Seen whenever a file is compiled, and another project's to mend.
warnings.simplefilter("ignore", SyntaxWarning)


def files(name, data):
    """What stands in the archive for a file: of a module its bytecode, and its source only where a learner may see it."""
    if not name.endswith(".py"):
        return {name: data}
    code = compile(data, name, "exec", dont_inherit=True)
    bytecode = bootstrap._code_to_hash_pyc(code, bytes(8), checked=False)  # which is never compared with the source
    if name.startswith("qkvlib/"):
        return {name: data, bootstrap.cache_from_source(name): bytecode}
    return {name + "c": bytecode}


for path in sorted(p for p in Path("/archives").iterdir() if p.suffix in (".whl", ".zip")):
    with zipfile.ZipFile(path) as archive:
        found = {entry.filename: archive.read(entry) for entry in archive.infolist() if not entry.is_dir()}
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(name for name in found if not unused.search(name)):
            for made, data in files(name, found[name]).items():
                # An entry of 1980, so that two builds are the same.
                archive.writestr(zipfile.ZipInfo(made), data, zipfile.ZIP_DEFLATED, 9)
`);
  python.FS.unmount('/archives');
}
