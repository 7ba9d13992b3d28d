"""Write the handout: one HTML file of all scenes of the lecture and of all notebooks, to read offline or to print.

python tools/handout.py [file]
"""

import html
import re
import sys
from pathlib import Path

import nbformat
from latex2mathml.converter import convert
from nbconvert import HTMLExporter

from qkvlib import Talk

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [*sorted(ROOT.glob("notebooks/20_*.ipynb")), *sorted(ROOT.glob("notebooks/ex_*.ipynb"))]
STYLE = """
body { font: 16px/1.45 system-ui, sans-serif; color: black; background: white; max-width: 60em; margin: 1em auto;
  padding: 0 1em; }
img { max-width: 100%; height: auto; }
figure { margin: 0.5em 0; }
pre { background: #f2f2f2; border: 1px solid #767676; padding: 6px 10px; overflow-x: auto; white-space: pre-wrap; }
table { border-collapse: collapse; }
td, th { border: 1px solid #767676; padding: 2px 8px; text-align: left; }
.prompt, .jp-InputPrompt, .jp-OutputPrompt, .anchor-link { display: none; }
section { break-before: page; }
article { break-inside: avoid; border-top: 1px solid #767676; }
@media print { body { max-width: none; margin: 0; } a { color: black; } }
"""


def scenes(path):
    """The talk of the lecture's notebook, without what is kept of an earlier one."""
    known = {}
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code" and "Talk(panels" not in cell.source:
            exec(compile(cell.source, f"{path.name}, {cell.id}", "exec"), known)
    return Talk(known["panels"], known["scenes"], remember=False)


def scene(talk, at):
    talk.go(at)
    shown, picture = talk.scenes[at], talk.panel.picture.still()["text/html"] if talk.panel else ""
    asked = (f"<p><b>{html.escape(shown.question)}</b></p><p>{html.escape(shown.answer)}</p>"
             if shown.question else "")  # fmt: skip
    return (f"<article><h2>{at + 1} {html.escape(shown.title)}</h2><p>{html.escape(shown.text)}</p>"
            f"{picture}{asked}</article>")  # fmt: skip


def section(path):
    """A notebook as it is committed, with its outputs; formulas as MathML, links within the file."""
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = mathematics(cell.source)
    body, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    body = re.sub(r'href="(?:\.\./notebooks/)?([\w.]+)\.ipynb"', r'href="#\1"', body)
    return f'<section id="{path.stem}">{body}</section>'


def mathematics(markdown):
    """LaTeX between dollars as MathML, which browsers show without any script; code stays as it is."""
    parts = re.split(r"(```.*?```|`[^`\n]*`)", markdown, flags=re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\$\$(.+?)\$\$", lambda m: convert(m[1], display="block"), parts[i], flags=re.DOTALL)
        parts[i] = re.sub(r"\$([^$\n]+)\$", lambda m: convert(m[1]), parts[i])
    return "".join(parts)


def handout():
    talk = scenes(ROOT / "notebooks" / "lecture.ipynb")
    contents = "".join(f'<li><a href="#{path.stem}">{title(path)}</a></li>' for path in NOTEBOOKS)
    return "\n".join([
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Attention: handout</title>',
        f"<style>{STYLE}</style></head><body><h1>Query, Key, Value: handout</h1>",
        f'<ul><li><a href="#lecture">The lecture</a></li>{contents}</ul><div id="lecture">',
        *(scene(talk, at) for at in range(len(talk.scenes))), "</div>", *map(section, NOTEBOOKS), "</body></html>",
    ])  # fmt: skip


def title(path):
    return html.escape(nbformat.read(path, 4).cells[0].source.splitlines()[0].lstrip("# "))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "handout.html")
    target.write_text(handout(), "utf-8")
    print(f"wrote {target}, {target.stat().st_size / 1e6:.1f} MB")
