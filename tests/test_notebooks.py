"""The notebooks are committed executed and clean, so that nbval has numbers to compare."""

import ast
import base64
import functools
import io
import itertools
import os
import re
import subprocess
import sys
from itertools import islice
from types import SimpleNamespace

import nbformat
import numpy as np
import oracle
import pictures
import pytest
from conftest import ROOT, load_tool
from matplotlib import rc_context
from matplotlib.figure import Figure

from qkvlib import AttentionPanel, attention, chapter, grammar, heatmap, tasks
from qkvlib.exercises import BEGIN, END, STUB
from qkvlib.gradients import numeric_gradient
from qkvlib.training import class_loss, small_random, train

NOTEBOOKS = sorted([*ROOT.glob("notebooks/*.ipynb"), *ROOT.glob("solutions/*.ipynb")])
NAMES = [path.name for path in NOTEBOOKS]

tool = load_tool("notebooks")


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
    return "print(" in source or isinstance(ast.parse(source).body[-1], ast.Expr)


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


def prose(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


@functools.cache
def known():
    """What marks in prose may speak of, computed by loops; what was learned, by training anew."""
    s, t, same = chapter.sentence, chapter.three_words, np.eye(4)
    _, weights, output = map(np.array, oracle.attention(s.X, s.W_Q, s.W_K, s.W_V))
    parameters = sum(W.size for W in (s.W_Q, s.W_K, s.W_V))
    scores, raw, _ = oracle.attention(t.X, same, same, same)
    return {
        "sentence": SimpleNamespace(X=s.X, W_Q=s.W_Q, weights=weights, output=output, parameters=parameters),
        "raw": np.array(raw),
        "three": SimpleNamespace(scores=np.array(scores)),
        "question": question,
        "down": lambda first: oracle.attention(s.X, [[first, 0, 0, 3]], [[first, 0, 0, 3]], s.W_V)[1][3][3],
        "saturated": {times: np.linalg.norm(numeric_gradient(wrong_word, times * s.W_Q)) for times in (1, 3, 10, 30)},
        "language": language(),
    }


def question(degrees, length):
    """The weight of "money" in 20.1, where the question points there and is so long."""
    angles, lengths = np.radians([degrees, 75, -20, 170]), [length, 1.6, 1.4, 1.0]
    vectors = [[size * np.cos(angle), size * np.sin(angle)] for size, angle in zip(lengths, angles, strict=True)]
    return oracle.attention(vectors[:1], np.eye(2), np.eye(2), np.eye(2), context=vectors[1:])[1][0][0]


def wrong_word(W_Q):
    """The loss of exercise 5, from scores, for a weight may be too small to be told from 0."""
    s = chapter.sentence
    scores = np.array(oracle.attention(s.X, W_Q, s.W_K, s.W_V)[0][2])
    return scores.max() + np.log(np.exp(scores - scores.max()).sum()) - scores[3]


def language():
    """What 20.5b says of its made-up language: shares of the held-out sentences, in percent."""
    learned, held_out = grammar.split(seed=0)
    words = {"context": learned.context, "keep": learned.keep}

    def after(seed, *names):
        start = small_random(seed, (4, 15), (4, 15), (3, 15))
        steps = train(learned.X, *start, class_loss(learned.classes), learn=names, rate=0.1, **words)
        return next(islice(steps, 100, None))[3:6]

    def of(W_Q, W_K, W_V):
        made = attention(held_out.X, W_Q, W_K, W_V, context=held_out.context, keep=held_out.keep)
        return made, 100 * np.mean(made.output.argmax(axis=1) == held_out.classes)

    looks, trained = [of(*after(seed, "W_Q", "W_K")) for seed in range(8)], after(1, "W_Q", "W_K", "W_V")
    found = looks[1][0].weights.argmax(axis=1) == held_out.keep.argmax(axis=1)
    without_word = trained[1] * (np.arange(15) >= len(grammar.WORDS))
    shares = [share for _, share in looks]
    return SimpleNamespace(found=100 * found.mean(), worst=min(shares), best=max(shares), looks=shares[1],
                           values=of(*after(1, "W_V"))[1], all=of(*trained)[1],
                           by_place=of(trained[0], without_word, trained[2])[1])  # fmt: skip


def wrong_numbers(notebook):
    """Numbers in prose that are not what their mark computes, and those that have no mark.

    A mark in Markdown is a comment behind the number: 0.871<!-- sentence.weights[0, 1] -->; in a code cell
    a line of its own: # 0.871 = sentence.weights[0, 1].
    """
    text, wrong = prose(notebook), []
    marks = re.findall(r"(\d[\d,.]*)<!-- (.+?) -->", text)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            own = re.findall(r"^# (\d[\d.]*) = (.+)$", cell.source, re.MULTILINE)
            strings = " ".join(re.findall(r'"[^"\n]*"|\'[^\'\n]*\'', cell.source))
            wrong += [number for number in re.findall(r"\b\d\.\d{3}\b", strings) if number not in dict(own)]
            marks += own
    for number, expression in marks:
        digits = len(number.partition(".")[2])
        if format(eval(expression, known()), f",.{digits}f") != number:
            wrong.append(f"{number} is not {expression}")
    bare = re.sub(r"\d[\d,.]*<!-- .+? -->|sections? [\d.]+( and [\d.]+)?", "", text)  # of a book: section 3.13
    return wrong + [number for number in re.findall(r"\b\d+\.\d{2,}", bare) if number not in STEPS]


STEPS = ("0.01", "0.05")  # of a slider


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_every_number_in_prose_is_computed(path):
    assert wrong_numbers(read(path)) == []


def test_a_changed_digit_in_prose_is_seen():
    for path in NOTEBOOKS:
        notebook = read(path)
        for cell in notebook.cells:
            for number in re.findall(r"\d[\d,.]*(?=<!--)|(?<=^# )\d\.\d+(?= = )", cell.source, re.MULTILINE):
                kept = cell.source
                cell.source = kept.replace(number, number[:-1] + str((int(number[-1]) + 1) % 10))
                assert wrong_numbers(notebook), (path.name, number)
                cell.source = kept


def label(path):
    """20.5b for 20_5b_now_let_it_learn.ipynb."""
    return ".".join(path.name.split("_")[:2])


def sections():
    return [path for path in NOTEBOOKS if path.name.startswith("20_")]


def test_there_is_a_notebook_for_each_section():
    assert [label(path) for path in sections()] == [f"20.{i}" for i in (1, 2, 3, 4, 5, "5b", 6, 7, 8, 9)]


@pytest.mark.parametrize("path", sections(), ids=lambda path: path.name)
def test_a_section_has_its_parts_in_order(path):
    notebook = read(path)
    text = prose(notebook)
    assert text.startswith(f"# {label(path)} ")
    assert re.search(r"\*[^*\n]*\d+ minutes[^*\n]*You need .+", text)
    found = [text.find(part) for part in ("**The claim", "What to remember")]
    assert -1 not in found == sorted(found)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert set(levels[1:]) == {2}
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert "predict(" in code
    assert re.search("Panel\\(", code)
    assert re.search(r"\b(http|www\.|urllib|requests)", code) is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_links_and_pictures_resolve_and_have_alt_texts(path):
    notebook = read(path)
    text = prose(notebook)
    for bang, words, target in re.findall(r"(!?)\[([^\]]*)\]\(([^)]+)\)", text):
        assert words, f"{bang}: no text for {target}"
        assert (path.parent / target).is_file(), target
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                assert re.search(r'<img alt="[^"]{20,}"', output.data["text/html"]), cell.id


def test_neighbours_link_to_each_other():
    paths = sections()
    for before, after in itertools.pairwise(paths):
        assert f"Next: [{label(after)} " in prose(read(before))
        assert f"]({after.name})" in prose(read(before))
        assert f"]({before.name})" in prose(read(after))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_spelling_is_british_throughout(path):
    text = prose(read(path)).lower()
    assert re.findall(r"\b(?:color|colors|normalize\w*|center\w*|neighbor\w*|behavior\w*|license)\b", text) == []


EXERCISES = sorted(ROOT.glob("solutions/*.ipynb"))


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.name)
def test_an_exercise_is_its_solution_with_the_solution_cut_out(path):
    solved, committed = read(path), read(ROOT / "notebooks" / path.name)
    built = tool.without_solution(solved)
    assert [(cell.id, cell.cell_type, cell.source, cell.metadata) for cell in committed.cells] == [
        (cell.id, cell.cell_type, cell.source, cell.metadata) for cell in built.cells
    ]  # nbval compares the outputs
    assert tool.leaks(committed, solved) == []
    stubs = [cell for cell in committed.cells if STUB in cell.source]
    assert len(stubs) == sum(BEGIN in cell.source for cell in solved.cells) > 0
    assert {cell.metadata.tags[0] for cell in solved.cells if cell.metadata.get("tags")} == {
        "explanation", "model answer",
    }  # fmt: skip


def test_there_are_six_exercises_and_no_other():
    names = [path.name for path in sorted(ROOT.glob("notebooks/ex_*.ipynb"))]
    assert names == [path.name for path in EXERCISES]
    assert [name[:5] for name in names] == [f"ex_{i}_" for i in range(1, 7)]


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.name)
def test_an_exercise_has_its_parts_in_order(path):
    notebook, number = read(ROOT / "notebooks" / path.name), int(path.name[3])
    text, exercise = prose(notebook), tasks.EXERCISES[number]
    assert text.startswith(f"# Exercise {number}: {exercise.title}\n")
    assert f"*{exercise.difficulty.capitalize()}, about {exercise.minutes} minutes." in text
    parts = ("**Why it matters.**", "**The task.**", "Experiment first", "Your turn", "## Help", "## Explain it")
    found = [text.find(part) for part in parts]
    assert -1 not in found == sorted(found)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert re.search(r"Panel\(|ParameterCounter\(", code)
    assert f"check({number}, {', '.join(exercise.answers)})" in code
    assert f"hint({number})" in code
    assert f"explain({number})" in code
    check = next(cell for cell in notebook.cells if cell.id == "check")
    shown = check.outputs[0].data["text/plain"].splitlines()
    assert [line.partition(": ")[2] for line in shown] == ["not attempted yet"] * len(shown)
    assert read(path).cells[-1].source == notebook.cells[-1].source
    index = prose(read(ROOT / "notebooks" / "20_9_exercises.ipynb"))
    row = rf"\| {number} \| \[.+\]\({path.name}\).*\| {exercise.difficulty} \| {exercise.minutes} \|"
    assert re.search(row, index)


def solution_notebook(*sources, tag=None):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    if tag:
        cells.append(nbformat.v4.new_markdown_cell("The reason why it is so.", metadata={"tags": [tag]}))
    return nbformat.v4.new_notebook(cells=cells)


SOLVED = f"x = ...  {STUB}\n{BEGIN}\nx = 40 + 2\n{END}"


def test_the_build_cuts_solutions_and_tagged_cells(tmp_path):
    solved = solution_notebook(SOLVED, f"def f():\n    y = ...\n    {BEGIN}\n    y = 'secret'\n    {END}\n    return y",
                               "f(), x", tag="explanation")  # fmt: skip
    built = tool.build_exercise(solved, tmp_path)
    assert [cell.source for cell in built.cells] == [
        f"x = ...  {STUB}",
        "def f():\n    y = ...\n    return y",
        "f(), x",
    ]
    assert built.cells[2].outputs[0].data["text/plain"] == "(Ellipsis, Ellipsis)"
    assert BEGIN in solved.cells[0].source


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        (["x = 1"], "no solution between"),
        ([f"{BEGIN}\nx = 1"], "a marker stands alone"),
        ([f"x = 1\n{END}"], "a marker stands alone"),
        ([SOLVED, f"{END}\n{BEGIN}"], "a marker stands alone"),
        ([f"{BEGIN}\n{BEGIN}\nx = 40 + 2\n{END}\n{END}"], "a marker stands alone"),
        ([SOLVED, "# x = 40 + 2"], r"has lines of the solution: \['x = 40 \+ 2'\]"),
        ([SOLVED, "print(f'x = 40 {chr(43)} 2')"], r"has lines of the solution: \['x = 40 \+ 2'\]"),
        ([SOLVED, "# The reason why it is so."], r"has lines of the solution: \['The reason why it is so.'\]"),
    ],
)
def test_the_build_fails_where_a_solution_would_be_seen(sources, says, tmp_path):
    with pytest.raises(ValueError, match=says):
        tool.build_exercise(solution_notebook(*sources, tag="explanation" if "reason" in says else None), tmp_path)


def test_an_explanation_alone_is_no_solution():
    with pytest.raises(ValueError, match="no solution between"):
        tool.without_solution(solution_notebook("x = 1", tag="explanation"))


def test_a_solution_in_metadata_or_escaped_in_html_is_seen():
    solved = solution_notebook(f"{BEGIN}\nif x < 1 and y:\n    pass\n{END}")
    exercise = solution_notebook("1")
    exercise.metadata["note"] = {"deep": ["if x < 1 and y:"]}
    assert tool.leaks(exercise, solved) == ["if x < 1 and y:"]
    exercise = solution_notebook("1")
    exercise.cells[0].outputs = [nbformat.v4.new_output("display_data", {"text/html": "<p>if x &lt; 1 and y:</p>"})]
    assert tool.leaks(exercise, solved) == ["if x < 1 and y:"]


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
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", "-p", "no:cacheprovider",
               f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval.cfg'}", "-p", "conftest", path]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=False)


def png(figure, **options):
    file = io.BytesIO()
    with rc_context(options):
        figure.savefig(file, format="png")
    return base64.b64encode(file.getvalue()).decode()


def test_pictures_are_compared_as_pictures():
    figure = Figure((6, 2.5), dpi=100)
    drawn = heatmap(figure.subplots(), [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], ["the", "cat"], title="weights")
    before = png(figure)
    otherwise = png(figure, **{"text.hinting": "none"})
    assert otherwise != before  # other letters, as of another version
    assert pictures.difference(before, otherwise) == ""
    figure.set_size_inches(6, 2.6)
    assert pictures.difference(before, png(figure)) == "a picture of 600 x 250 pixels became one of 600 x 260"
    figure.set_size_inches(6, 2.5)
    drawn.update([[0.5, 0.3, 0.2], [0.1, 0.4, 0.7]])
    said = pictures.difference(before, png(figure))
    assert re.fullmatch(r"the colours round pixel \d+, \d+ differ by \d+ of 255", said)


def test_a_changed_picture_in_an_output_fails(tmp_path):
    notebook = read(ROOT / "notebooks" / "20_4_attention_on_a_sequence.ipynb")
    notebook.cells = [cell for cell in notebook.cells if cell.id in ("imports", "lab")]
    panel = AttentionPanel(chapter.sentence)
    panel.W_Q = np.zeros((3, 4))
    (output,) = notebook.cells[-1].outputs
    output.data["image/png"] = panel.picture.still()["image/png"]
    path = tmp_path / "copy.ipynb"
    nbformat.write(notebook, path)
    spoiled = nbval(path)
    assert spoiled.returncode == 1
    assert "the colours round pixel" in spoiled.stdout


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
