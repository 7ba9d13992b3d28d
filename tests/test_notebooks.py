"""The notebooks are committed executed and clean, so that nbval has numbers to compare."""

import importlib.util
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

NOTEBOOKS = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*.ipynb")])
NAMES = [path.name for path in NOTEBOOKS]

spec = importlib.util.spec_from_file_location("notebooks_tool", ROOT / "tools" / "notebooks.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def faults(notebook):
    """What is wrong with a committed notebook; empty where it is as it should be."""
    found = []
    if notebook.metadata != tool.METADATA:
        found.append(f"metadata: expected {tool.METADATA}, got {notebook.metadata}")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        found.append("not executed once from top to bottom")
    for cell in code:
        kinds = [output.output_type for output in cell.outputs]
        if "error" in kinds and "raises-exception" not in cell.metadata.get("tags", ()):
            found.append(f"{cell.id}: an error that is not expected")
        if any(tool.VIEW in output.get("data", {}) for output in cell.outputs):
            found.append(f"{cell.id}: a widget view, which viewers without a kernel cannot show")
        if not kinds and shows_something(cell.source):
            found.append(f"{cell.id}: its output is lost")
    return found


def shows_something(source):
    """Whether a cell prints, or ends in an expression."""
    last = source.rstrip().splitlines()[-1]
    ends_in_expression = not last.startswith((" ", "_ =", "import ", "from ", "def ")) and " = " not in last
    return "print(" in source or ends_in_expression


def read(path):
    return nbformat.read(path, as_version=4)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_committed_as_built(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert faults(notebook) == []
    assert len(notebook.cells) <= 40
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    long = [cell.id for cell in notebook.cells if cell.cell_type == "code" and cell.source.count("\n") > 12]
    assert long == []


def strip_output(notebook):
    next(cell for cell in notebook.cells if cell.get("outputs")).outputs = []


def strip_count(notebook):
    next(cell for cell in notebook.cells if cell.cell_type == "code").execution_count = None


def other_kernel(notebook):
    notebook.metadata.kernelspec.name = "qkv"


def widget_state(notebook):
    notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": {}}


def widget_view(notebook):
    cell = next(cell for cell in notebook.cells if cell.get("outputs"))
    cell.outputs.append(nbformat.v4.new_output("display_data", {tool.VIEW: {"model_id": "x"}}))


def error(notebook):
    cell = next(cell for cell in notebook.cells if cell.get("outputs"))
    cell.outputs.append(nbformat.v4.new_output("error", ename="ValueError", evalue="", traceback=[]))


@pytest.mark.parametrize("spoil", [strip_output, strip_count, other_kernel, widget_state, widget_view, error])
def test_the_guard_sees(spoil):
    notebook = read(NOTEBOOKS[0])
    spoil(notebook)
    assert len(faults(notebook)) == 1


def nbval(path):
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider", path]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


def test_one_changed_digit_in_an_output_fails(tmp_path):
    notebook = read(ROOT / "notebooks" / "20_4_attention_on_a_sequence.ipynb")
    notebook.cells = [cell for cell in notebook.cells if cell.id in ("imports", "formula", "numbers")]
    path = tmp_path / "copy.ipynb"
    nbformat.write(notebook, path)
    assert nbval(path).returncode == 0
    (output,) = notebook.cells[-1].outputs
    assert output.text.count("0.871") == 2
    output.text = output.text.replace("0.871", "0.872", 1)
    nbformat.write(notebook, path)
    spoiled = nbval(path)
    assert spoiled.returncode == 1
    assert "0.872" in spoiled.stdout


def test_what_writes_to_stderr_is_not_committed():
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", name="stderr", text="Warning")])
    with pytest.raises(ValueError, match="a cell wrote to stderr: Warning"):
        tool.clean(nbformat.v4.new_notebook(cells=[cell]))
