"""Every notebook in a real JupyterLab and a real Chromium: opened, run by keys, saved, opened again, exported."""

import base64
import io
import json
import re

import nbformat
import numpy as np
import pytest
from conftest import ROOT, load_tool, run_jupyter
from PIL import Image
from playwright.sync_api import expect
from test_browser import LEARN, LESSON, Page, write

from qkvlib import AttentionPanel, chapter, exercises

pytestmark = pytest.mark.browser
notebooks = load_tool("notebooks")
# Chromium 150 keeps a text of more than 65,536 letters in several nodes, 156 in one: made so in any.
PIECES = """
    const inner = Object.getOwnPropertyDescriptor(Element.prototype, 'innerHTML');
    Object.defineProperty(Element.prototype, 'innerHTML', {...inner, set(html) {
        inner.set.call(this, html);
        for (let text = this.firstChild; text instanceof Text && text.length > 65536;) text = text.splitText(65536);
    }});"""


def test_a_screen_of_double_density_gets_a_sharp_picture(lab, browser):
    opened = Page(lab, browser, LESSON, before=PIECES, device_scale_factor=2)
    opened.run_all()
    opened.page.wait_for_function("document.querySelector('img.qkv-picture').naturalWidth > 600", timeout=15_000)
    size = opened.panel.locator("img.qkv-picture").evaluate("image => [image.naturalWidth, image.clientWidth]")
    assert size == [1200, 600]
    assert opened.panel.locator("canvas").evaluate("canvas => [canvas.width, canvas.clientWidth]") == [1200, 600]
    opened.page.close()


def test_the_committed_notebook_shows_its_pictures_before_it_is_run(lab, browser):
    opened = Page(lab, browser, LESSON)
    opened.page.get_by_role("img", name='"the" looks mostly at "cat"').first.wait_for()
    captions = opened.page.locator("figcaption")
    captions.nth(1).wait_for(state="attached")
    assert captions.first.inner_text() == AttentionPanel(chapter.sentence).picture.caption
    assert opened.page.get_by_text("Error displaying widget").count() == 0
    opened.page.close()


def stills(path):
    """The pictures and captions that a notebook's file has, by cell."""
    return {cell.id: (output.data["image/png"], output.data["text/plain"])
            for cell in nbformat.read(path, 4).cells for output in cell.get("outputs", ())
            if "image/png" in output.get("data", {})}  # fmt: skip


def save(opened):
    opened.page.wait_for_timeout(500)
    opened.page.keyboard.press("Control+s")
    opened.page.wait_for_selector(".jp-mod-current:not(.jp-mod-dirty) .lm-TabBar-tabLabel")
    opened.page.wait_for_timeout(500)


def test_opened_and_saved_any_number_of_times_a_notebook_has_the_last_pictures(lab, browser):
    opened = Page(lab, browser, LESSON)
    path = lab.folder / "notebooks" / opened.name
    committed = path.read_bytes()
    save(opened)
    assert path.read_bytes() == committed  # opening alone changes nothing
    opened.run_all()
    opened.panel.get_by_role("button", name="Identity").click()
    opened.settled()
    opened.page.wait_for_timeout(1000)  # the image has followed what was painted
    last, caption = opened.image(), opened.caption()
    save(opened)
    saved = path.read_bytes()
    kept = stills(path)
    assert len(kept) == 3
    shown, whole = (np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
                    for png in (base64.b64decode(kept["lab"][0]), last))  # fmt: skip
    np.testing.assert_array_equal(shown, whole)
    assert kept["lab"][1] == caption != stills(ROOT / "notebooks" / LESSON)["lab"][1]
    assert len(saved) < 1.1 * len(committed)
    assert saved.count(b"\n") == committed.count(b"\n")
    assert b"widget-" not in saved

    opened.menu("Kernel", "[data-command='kernelmenu:restart']")
    opened.page.get_by_role("button", name="Confirm Kernel Restart").click()
    opened.page.locator(".qkv-panel.jupyter-widgets-disconnected").first.wait_for()
    opened.page.locator(".jp-CodeCell .cm-content").first.click()
    save(opened)
    assert stills(path) == kept
    for _ in range(2):
        opened.page.reload()
        opened.page.get_by_role("img", name=caption).first.wait_for(timeout=60_000)
        opened.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        opened.page.locator(".jp-CodeCell .cm-content").first.click()
        save(opened)
        assert opened.page.get_by_text("Error displaying widget").count() == 0
        assert stills(path) == kept
    opened.page.close()

    run_jupyter("nbconvert", "--to", "html", path)
    page = browser.new_page()
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(path.with_suffix(".html").as_uri())
    picture = page.locator("figure img").first
    assert picture.evaluate("image => [image.naturalWidth, image.alt]") == [600, caption]
    assert picture.get_attribute("src").endswith(kept["lab"][0])
    page.close()


def test_a_dense_screen_saves_no_larger_picture(lab, browser):
    write(lab, "dense.ipynb", "from qkvlib import AttentionPanel, chapter\nAttentionPanel(chapter.sentence)")
    opened = Page(lab, browser, "dense.ipynb", device_scale_factor=2)
    opened.run_cell(0)
    opened.page.wait_for_function("document.querySelector('img.qkv-picture')?.naturalWidth > 600", timeout=15_000)
    save(opened)
    ((picture, caption),) = stills(lab.folder / "notebooks" / "dense.ipynb").values()
    assert Image.open(io.BytesIO(base64.b64decode(picture))).size == (600, 492)
    expected = AttentionPanel(chapter.sentence).picture.still()
    (output,) = nbformat.read(lab.folder / "notebooks" / "dense.ipynb", 4).cells[0].outputs
    assert output.data.keys() == expected.keys()
    assert output.data["text/html"] == expected["text/html"].replace(expected["image/png"], picture)
    assert caption == expected["text/plain"]
    opened.page.close()


SECTIONS = sorted(path.name for path in ROOT.glob("notebooks/20_*.ipynb"))
EXERCISES = sorted(path.name for path in ROOT.glob("notebooks/ex_*.ipynb"))
UNNAMED = """panel => [...panel.querySelectorAll('[role=slider], input, select, button, textarea')]
    .filter(it => it.offsetParent && !it.closest('.jp-CodeMirrorEditor')).filter(it => {
        const label = it.getAttribute('aria-label') || it.labels?.[0]?.textContent || it.textContent || it.title;
        return !label?.trim() || it.tabIndex < 0; }).map(it => it.outerHTML.slice(0, 200))"""


@pytest.mark.parametrize("name", SECTIONS + [name for name in EXERCISES if not name.startswith("ex_4")])  # no slider
def test_a_section_runs_and_its_panels_answer_keys(lab, browser, name):
    opened = Page(lab, browser, name)
    opened.page.keyboard.press("Control+b")  # fold the file browser
    opened.run_all()
    assert opened.page.get_by_text(re.compile("Traceback|Error displaying widget")).count() == 0
    frame = opened.page.locator(".jp-WindowedPanel-outer").bounding_box()
    panels = opened.page.locator(".qkv-panel:has(> .qkv-columns)")
    for number in range(panels.count()):
        panel = panels.nth(number)
        panel.evaluate("panel => panel.scrollIntoView()")
        canvas = panel.locator("canvas")
        canvas.wait_for()
        assert canvas.count() == 1
        before, handle = canvas.evaluate("it => it.toDataURL()"), panel.locator("[role=slider]").first
        steps = panel.get_by_role("button", name="Step", exact=True)
        for _ in range(2 * steps.count()):  # there, the slider only goes back through what happened
            steps.click()
        handle.focus()
        opened.page.keyboard.press("ArrowLeft")
        if not steps.count():
            opened.page.keyboard.press("PageDown")
        for _ in range(100):
            if canvas.evaluate("it => it.toDataURL()") != before:
                break
            opened.page.wait_for_timeout(100)
        assert canvas.evaluate("it => it.toDataURL()") != before, number
        box = panel.locator(".qkv-controls").bounding_box(), panel.locator("img.qkv-picture").bounding_box()
        for part in box:
            assert part["x"] >= frame["x"]
            assert part["x"] + part["width"] <= frame["x"] + frame["width"]
            assert part["height"] <= frame["height"]
        assert box[0]["x"] + box[0]["width"] <= box[1]["x"]  # side by side
    everything = opened.page.locator(".qkv-panel")
    assert [everything.nth(i).evaluate(UNNAMED) for i in range(everything.count())] == [[]] * everything.count()
    assert opened.errors == []
    opened.page.close()


COUNT = "import ipywidgets\nprint('widgets:', len(ipywidgets.widgets.widget._instances))"


def test_run_again_or_restarted_a_cell_leaves_one_panel_and_no_old_widgets(lab, browser):
    setup = "from qkvlib import AttentionPanel, chapter\n"
    panels = "panel = AttentionPanel(chapter.sentence, show=('Q', 'weights'))\npanel"
    write(lab, "again.ipynb", setup + COUNT, panels, COUNT)
    opened = Page(lab, browser, "again.ipynb")
    counted = opened.page.locator(".jp-CodeCell").nth(2).get_by_text(re.compile(r"widgets: \d+"))

    def run(*numbers):
        for number in numbers:
            opened.run_cell(number)
            opened.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
            opened.page.wait_for_timeout(1000)
        return counted.inner_text()

    first = run(0, 1, 2)
    assert int(first.split()[-1]) > 100
    assert run(1, 1, 0, 1, 2) == first
    assert opened.page.locator(".qkv-panel").count() == 1
    opened.menu("Kernel", "[data-command='kernelmenu:restart']")
    opened.page.get_by_role("button", name="Confirm Kernel Restart").click()
    opened.page.wait_for_timeout(3000)
    opened.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
    assert run(0, 1, 2) == first
    assert opened.page.locator(".qkv-panel").count() == 1
    opened.page.close()


def test_the_switch_and_own_words_by_keyboard(lab, browser):
    opened = Page(lab, browser, "20_7_self_and_cross_attention.ipynb")
    opened.run_all()
    group = opened.page.get_by_role("radiogroup", name="Q, K and V from where?")
    group.get_by_role("radio").first.focus()
    for words in ('"le" looks most', '"le" looks most', '"the" looks most'):
        opened.page.keyboard.press("ArrowDown")
        opened.page.locator(".qkv-panel .qkv-panel p[id]").get_by_text(words).wait_for()
        opened.page.locator(".qkv-panel .qkv-panel canvas").wait_for()
    assert opened.page.locator(".qkv-panel .qkv-panel").count() == 1
    opened.page.close()


def test_exports_of_all_sections_show_their_pictures_without_kernel_or_network(browser, tmp_path):
    run_jupyter("nbconvert", "--to", "html", "--output-dir", tmp_path, *ROOT.glob("notebooks/20_*.ipynb"))
    for name in SECTIONS:
        outputs = [output for cell in nbformat.read(ROOT / "notebooks" / name, 4).cells
                   for output in cell.get("outputs", ()) if "image/png" in output.get("data", {})]  # fmt: skip
        page = browser.new_page()
        page.route(re.compile("^https?:"), lambda route: route.abort())
        page.goto((tmp_path / name).with_suffix(".html").as_uri())
        shown = page.locator("figure img").evaluate_all("all => all.map(it => [it.naturalWidth >= 500, it.alt])")
        captions = [output.data["text/plain"] for output in outputs]
        assert shown == [[True, caption] for caption in captions] != []
        assert page.locator("figcaption").all_inner_texts() == captions
        page.close()


def test_a_pattern_is_drawn_and_what_cannot_be_is_said(lab, browser):
    write(lab, "draw.ipynb", LEARN[0])
    opened = Page(lab, browser, "draw.ipynb")
    opened.run_cell(0)
    opened.show()
    picture = opened.panel.locator("img.qkv-picture")
    picture.click(position={"x": 366 + 0.5 * 57, "y": 520 - 316 + 2.5 * 33})  # of "wanted", row sat, column the
    wanted = opened.panel.get_by_label("wanted: sat (3) at the (1)")
    expect(wanted).to_have_value("1")
    assert opened.panel.get_by_label("drawn by me").is_checked()
    opened.panel.get_by_label("each to itself").check()
    expect(wanted).to_have_value("0")
    wanted.fill("-0.5")
    wanted.press("Enter")
    alert = opened.panel.get_by_role("alert")
    alert.get_by_text("target, row 3 (sat): expected weights from 0 to 1, got -0.5").wait_for()
    wanted.fill("0")
    wanted.press("Enter")
    alert.wait_for(state="detached")
    rate = opened.panel.get_by_label("learning rate")
    rate.fill("100")
    rate.press("Enter")
    opened.panel.get_by_role("button", name="Play").press("Enter")
    alert.get_by_text("The learning rate 100 is too high; try 10.").wait_for()
    assert re.match(r"Step \d+ of 200", opened.caption())
    opened.page.close()


def open_exercise(lab, browser, name):
    opened = Page(lab, browser, name)
    opened.run_until(opened.page.get_by_text("Show a model answer"))  # not every exercise has a slider
    return opened


def code_cell(opened, source):
    """Write a cell at the end of the notebook, run it, and return its output area."""
    cells = opened.page.locator(".jp-Notebook .jp-Cell")
    cells.last.scroll_into_view_if_needed()
    cells.last.click()
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("b")
    opened.page.keyboard.press("Enter")
    opened.page.keyboard.insert_text(source)
    opened.page.keyboard.press("Control+Enter")
    return opened.page.locator(".jp-CodeCell").last


@pytest.mark.parametrize("name", EXERCISES)
def test_help_opens_step_by_step_and_a_saved_exercise_has_no_line_of_the_solution(lab, browser, name, monkeypatch):
    monkeypatch.setattr(exercises, "SOLUTIONS", ROOT / "solutions")
    opened = open_exercise(lab, browser, name)
    assert opened.page.get_by_text(re.compile("Traceback|Error displaying widget")).count() == 0
    panel = opened.page.locator(".qkv-panel:has(button:has-text('1. A nudge'))")
    panel.scroll_into_view_if_needed()
    steps = [
        panel.get_by_role("button", name=words) for words in ("1. A nudge", "2. A stronger hint", "3. The solution")
    ]
    said = panel.locator("[role=status]:visible")
    assert [step.is_enabled() for step in steps] == [True, False, False]
    for number, step in enumerate(steps):
        step.focus()
        opened.page.keyboard.press("Enter")
        said.nth(number).get_by_text(re.compile(r"\w+")).first.wait_for()
    code = panel.locator("pre").inner_text()
    answer = opened.page.locator(".qkv-panel:has(button:has-text('Show a model answer'))")
    answer.get_by_role("button").press("Enter")
    answer.locator("[role=status] p").first.wait_for()
    everything = opened.page.locator(".qkv-panel")
    assert [everything.nth(i).evaluate(UNNAMED) for i in range(everything.count())] == [[]] * everything.count()

    solved = nbformat.read(ROOT / "solutions" / name, 4)
    assert code == exercises._code(int(name[3]))
    opened.page.wait_for_timeout(1000)
    opened.page.keyboard.press("Control+s")
    opened.page.wait_for_selector(".jp-mod-current:not(.jp-mod-dirty) .lm-TabBar-tabLabel")
    saved = nbformat.read(next(lab.folder.glob(f"notebooks/{opened.name}")), 4)
    assert "widgets" not in saved.metadata
    assert notebooks.leaks(saved, solved) == []
    assert opened.errors == []
    opened.page.close()


LOOP = """def cross_attention(*a):
    while True:
        print("again")
check(3, cross_attention)"""
EXIT = """def cross_attention(*a):
    exit()
check(3, cross_attention)"""


def test_a_learner_loops_exits_takes_the_solution_and_passes(lab, browser):
    progress = lab.folder / "notebooks" / "progress.json"
    assert not progress.exists()
    opened = open_exercise(lab, browser, "ex_3_cross_attention.ipynb")
    code_cell(opened, LOOP).get_by_text("it took longer than 5 seconds and was stopped").wait_for(timeout=20_000)
    code_cell(opened, EXIT).get_by_text("it called exit(), which would end").wait_for()
    before = opened.page.locator(".jp-CodeCell").count()
    code_cell(opened, "from qkvlib import reveal\nreveal(3, insert=True)")
    inserted = opened.page.locator(".jp-CodeCell").nth(before + 1)
    inserted.get_by_text("def cross_attention(decoder, encoder, W_Q, W_K, W_V):").wait_for()
    inserted.locator(".cm-content").click()
    opened.page.keyboard.press("Control+Enter")
    inserted.get_by_text(re.compile(r"\[\d+\]:")).first.wait_for()
    code_cell(opened, "check(3, cross_attention)").get_by_text("Exercise 3, Cross-attention: passed").wait_for()
    assert list(json.loads(progress.read_text())) == ["3"]
    opened.page.close()

    index = Page(lab, browser, "20_9_exercises.ipynb")
    index.run_all()
    row = index.page.locator(".qkv-panel tr", has_text="Cross-attention")
    row.get_by_text(re.compile(r"✔ passed on \d{4}-\d\d-\d\d")).wait_for(state="attached")
    assert index.page.locator(".qkv-panel td", has_text="not yet").count() == 5
    index.page.close()
    progress.unlink()
