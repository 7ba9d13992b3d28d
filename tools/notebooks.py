"""Execute the notebooks and write them back clean: python tools/notebooks.py [path ...], by default all of them.

The exercise notebooks are made from those in solutions/: a path there makes both.
"""

import copy
import html
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from qkvlib.exercises import BEGIN, END

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


def without_solution(solved):
    """The exercise of a solution notebook: what stands between the markers is cut, and so are tagged cells.

    Raises ValueError where there are no markers, or where they are not in pairs.
    """
    if not any(BEGIN in cell.source or END in cell.source for cell in solved.cells):
        raise ValueError(f"no solution between {BEGIN} and {END}")
    exercise = copy.deepcopy(solved)
    exercise.cells = [cell for cell in exercise.cells if not cell.metadata.get("tags")]
    for cell in exercise.cells:
        cell.source = re.sub(rf"\n?[ \t]*{BEGIN}\n.*?{END}", "", cell.source, flags=re.DOTALL)
        if BEGIN in cell.source or END in cell.source:
            raise ValueError(f"{cell.id}: a marker stands alone: every {BEGIN} needs one {END} behind it")
    return exercise


def secrets(solved):
    """Every line that must not be seen in an exercise: of the solution's code, and of the tagged cells."""
    blocks = [block for cell in solved.cells for block in re.findall(rf"{BEGIN}\n(.*?){END}", cell.source, re.DOTALL)]
    blocks += [cell.source for cell in solved.cells if cell.metadata.get("tags")]
    lines = {line.strip() for block in blocks for line in block.splitlines()}
    return {line for line in lines if len(line) > 5}  # "else:" and its like tell nothing


def leaks(exercise, solved):
    """The lines of the solution that can be read anywhere in the exercise."""
    texts = "\n".join(strings(exercise))
    return sorted(line for line in secrets(solved) if line in texts or html.escape(line) in texts)


def strings(part):
    if isinstance(part, str):
        yield part
    elif isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from strings(inner)


def build_exercise(solved, folder):
    """The executed exercise of a solution notebook; raises ValueError where it gives the solution away."""
    exercise = execute(without_solution(solved), folder)
    if found := leaks(exercise, solved):
        raise ValueError(f"the exercise has lines of the solution: {found}")
    return exercise


def rebuild(path):
    notebook = execute(nbformat.read(path, as_version=4), path.parent)
    nbformat.write(notebook, path)
    print(f"executed {path.relative_to(ROOT)}")
    if path.parent == ROOT / "solutions":
        made = ROOT / "notebooks" / path.name
        nbformat.write(build_exercise(notebook, made.parent), made)
        print(f"built {made.relative_to(ROOT)}")


if __name__ == "__main__":
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    for path in chosen or sorted([*ROOT.glob("notebooks/20_*.ipynb"), *ROOT.glob("solutions/*.ipynb")]):
        rebuild(path)
