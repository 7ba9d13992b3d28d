"""Execute the notebooks and write them back clean: python tools/notebooks.py [path ...], by default all of them."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
VIEW = "application/vnd.jupyter.widget-view+json"


def execute(notebook, folder):
    """Run every cell in a fresh kernel, in the notebook's own folder; raises on the first error."""
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False,
                            resources={"metadata": {"path": str(folder)}})  # fmt: skip
    client.execute()
    return clean(notebook)


def clean(notebook):
    """Keep what a reader needs, and nothing that differs from run to run."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            # Without its kernel a view is only "model not found": the picture beside it stands in.
            output.get("data", {}).pop(VIEW, None)
            if output.get("name") == "stderr":
                raise ValueError(f"a cell wrote to stderr: {output.text[:300]}")
    return notebook


def rebuild(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.write(execute(notebook, path.parent), path)
    print(f"executed {path.relative_to(ROOT)}")


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    for path in chosen or sorted(ROOT.glob("notebooks/*.ipynb")):
        rebuild(path)
