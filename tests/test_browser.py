"""Section 20.4 as a learner meets it: a real JupyterLab in a real Chromium, keys pressed and sliders dragged."""

import base64
import hashlib
import io
import itertools
import re
import shutil
import time

import nbformat
import numpy as np
import oracle
import pytest
from conftest import ROOT
from matplotlib import colormaps
from PIL import Image
from playwright.sync_api import expect

from qkvlib import AttentionPanel, chapter
from qkvlib.panels import describe
from qkvlib.training import pattern_loss, small_random, train

pytestmark = pytest.mark.browser
COPIES = itertools.count()
LESSON = "20_4_attention_on_a_sequence.ipynb"
VIRIDIS = colormaps["viridis"](np.arange(256), bytes=True)[:, :3].astype(int)


class Page:
    """A notebook open in JupyterLab, and what a person sees of one of its panels."""

    def __init__(self, lab, browser, name, layout="&reset", before="", **options):
        self.page = browser.new_page(viewport={"width": 1366, "height": 768}, **options)
        self.page.add_init_script(before)
        self.errors = []
        if (ROOT / "notebooks" / name).exists():  # a copy of its own, since JupyterLab saves what is open now and then
            original, name = ROOT / "notebooks" / name, f"{next(COPIES)}_{name}"
            shutil.copy(original, lab.folder / "notebooks" / name)
        self.name = name
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.goto(f"{lab.url}/lab/tree/notebooks/{name}?token=t{layout}")
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        self.page.wait_for_timeout(1000)  # JupyterLab drops what is run in the moment that the kernel connects

    def menu(self, name, *commands):
        self.page.click(f".lm-MenuBar-item:has-text('{name}')")
        for command in commands:
            self.page.click(f".lm-Menu-item{command}")

    def run_until(self, sign):
        """Run all, again where JupyterLab dropped it: a busy kernel may only be starting."""
        for _ in range(4):
            self.menu("Run", "[data-command='runmenu:run-all']")
            for _ in range(40):
                self.page.wait_for_timeout(500)
                if sign.count():
                    break
            if sign.count():
                break
        sign.first.wait_for(timeout=60_000)

    def run_all(self):
        self.run_until(self.page.locator(".qkv-panel .noUi-handle"))
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]", timeout=60_000)
        self.show()

    def show(self, number=0):
        """Scroll so that a panel is at the top; it is the one that the other methods speak of."""
        self.panel = self.page.locator(".qkv-panel:has(img.qkv-picture)").nth(number)
        self.panel.locator("[role=slider][aria-label]").first.wait_for()
        self.panel.evaluate("panel => panel.scrollIntoView()")
        self.page.wait_for_timeout(300)

    def run_cell(self, number):
        cell = self.page.locator(".jp-CodeCell").nth(number)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        for _ in range(5):
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Shift+Enter")
            self.page.wait_for_timeout(1500)
            if (now := prompt.inner_text()) != before and now != "[ ]:":
                break
        cell.get_by_text(re.compile(r"\[\d+\]:")).first.wait_for()

    def handle(self, name):
        return self.panel.locator(f"[role=slider][aria-label='{name}']")

    def matrices(self):
        """W_Q and W_K, read off the numbers beside the sliders."""
        texts = self.panel.locator(".qkv-cell .widget-readout").all_inner_texts()
        return np.reshape([float(text.replace("−", "-")) for text in texts], (2, 3, 4))

    def caption(self):
        return self.panel.locator(".qkv-live p").first.inner_text()

    def png(self):
        """What is painted over the image, or the image itself where nothing is."""
        if self.panel.locator("canvas").count():
            return base64.b64decode(self.panel.locator("canvas").evaluate("it => it.toDataURL().split(',')[1]"))
        return self.image()

    def image(self):
        script = """image => fetch(image.src).then(answer => answer.arrayBuffer())
            .then(bytes => btoa(String.fromCharCode(...new Uint8Array(bytes))))"""
        return base64.b64decode(self.panel.locator("img.qkv-picture").evaluate(script))

    def weights(self):
        """The weights, read off the colours of their cells in the picture."""
        pixels = np.asarray(Image.open(io.BytesIO(self.png())))[..., :3].astype(int)
        box = AttentionPanel(chapter.sentence)._heatmaps["weights"].ax.get_window_extent()
        corners = [(pixels.shape[0] - box.y1 + i * box.height / 4 + 8, box.x0 + j * box.width / 4 + 8)
                   for i in range(4) for j in range(4)]  # fmt: skip
        colours = np.array([pixels[round(y), round(x)] for y, x in corners])
        distance = np.abs(colours[:, None] - VIRIDIS).sum(axis=2)
        assert distance.min(axis=1).max() == 0  # every cell has a colour of the map
        return distance.argmin(axis=1).reshape(4, 4) / 255

    def settled(self):
        """Wait until nothing moves any more, and check that picture and caption are those of the sliders."""
        before = None
        for _ in range(50):
            self.page.wait_for_timeout(100)
            now = (self.png(), self.caption())
            if now == before:
                break
            before = now
        s, (W_Q, W_K) = chapter.sentence, self.matrices()
        weights = oracle.attention(s.X, W_Q, W_K, s.W_V)[1]
        np.testing.assert_allclose(self.weights(), weights, atol=0.004)
        assert self.caption() == describe(weights, s.words)
        return W_Q, W_K


@pytest.fixture(scope="module")
def lesson(lab, browser):
    opened = Page(lab, browser, LESSON, layout="")  # as make lab opens it, with the side bar folded
    opened.run_all()
    yield opened
    opened.page.close()


@pytest.fixture(autouse=True)
def _reset(request):
    if "lesson" in request.fixturenames:
        lesson = request.getfixturevalue("lesson")
        lesson.show()
        lesson.panel.get_by_role("button", name="Reset").click()
        lesson.page.wait_for_timeout(300)
        lesson.errors.clear()


def test_arrow_key_moves_picture_caption_and_name(lesson):
    before = lesson.png()
    handle = lesson.handle("W_Q row 2 column 1")
    handle.focus()
    for key in ("ArrowRight", "ArrowRight", "PageUp"):
        lesson.page.keyboard.press(key)
    W_Q, _ = lesson.settled()
    assert W_Q[1, 0] == pytest.approx(1.01 + 0.02 + 0.05)
    assert handle.get_attribute("aria-valuetext") == "1.08"
    assert lesson.png() != before
    lesson.page.keyboard.press("Home")
    W_Q, _ = lesson.settled()
    assert W_Q[1, 0] == -4
    assert lesson.page.get_by_role("img", name=lesson.caption(), exact=True).count() == 1
    assert lesson.errors == []


def drag(lesson, name, seconds):
    box = lesson.handle(name).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    lesson.page.mouse.move(x, y)
    lesson.page.mouse.down()
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        lesson.page.mouse.move(x + 30 * np.sin(5 * now), y)
    lesson.page.mouse.move(x - 23, y)
    lesson.page.mouse.up()


def test_a_drag_of_three_seconds_leaves_the_last_value_on_screen(lesson):
    size = lesson.panel.locator("img.qkv-picture").bounding_box()
    drag(lesson, "W_K row 2 column 2", 3)
    _, W_K = lesson.settled()
    assert W_K[1, 1] < 0
    assert lesson.panel.locator("img.qkv-picture").bounding_box() == size
    assert lesson.errors == []


@pytest.mark.parametrize("key", ["Enter", "Tab"])
def test_what_is_typed_beside_a_slider_counts_or_is_refused_in_words(lesson, key):
    readout = lesson.panel.get_by_role("textbox", name="W_Q row 3 column 2, typed")
    alert = lesson.panel.get_by_role("alert").filter(has_text="W_Q row 3 column 2")

    def write(text):
        readout.click()
        lesson.page.keyboard.press("Control+a")
        lesson.page.keyboard.press("Delete")
        lesson.page.keyboard.type(text)
        lesson.page.keyboard.press(key)

    for text, value in (("-2.5", -2.5), ("0,5", 0.5), ("−1.25", -1.25), ("-4", -4), ("7e-1", 0.7)):
        write(text)
        expect(lesson.handle("W_Q row 3 column 2")).to_have_attribute("aria-valuetext", f"{value:g}")
        W_Q, _ = lesson.settled()
        assert W_Q[2, 1] == value
        assert alert.count() == 0
    for text in ("x", "9", "-4.01", "", "1,2,3", "NaN"):
        write(text)
        said = f'W_Q row 3 column 2: expected a number from -4 to 4, got "{text}". It stays 0.70.'
        expect(alert).to_have_text(said)
        W_Q, _ = lesson.settled()
        assert W_Q[2, 1] == 0.7
    write("0.8")
    expect(alert).to_have_count(0)
    assert lesson.settled()[0][2, 1] == 0.8
    assert lesson.errors == []


def test_presets_and_reset(lesson):
    for name, expected in (
        ("Zeros", np.zeros((2, 3, 4))),
        ("Identity", [np.eye(3, 4)] * 2),
        ("Chapter", [chapter.sentence.W_Q, chapter.sentence.W_K]),
    ):
        lesson.panel.get_by_role("button", name=name).click()
        np.testing.assert_array_equal(lesson.settled(), expected)
    lesson.panel.get_by_role("button", name="Random").click()
    first = lesson.settled()
    assert np.abs(np.subtract(first, expected)).max() > 0.5
    lesson.panel.get_by_role("button", name="Reset").click()
    np.testing.assert_array_equal(lesson.settled(), expected)


def test_choosing_a_pair_writes_it_out(lesson):
    lesson.panel.get_by_label("query").select_option(label="4 down")
    lesson.panel.get_by_label("key").select_option(label="3 sat")
    lesson.panel.get_by_text('"down" asks "sat": score = q · k').wait_for()
    assert re.search(r"= 2\.984\. .* weight 0\.644", lesson.panel.locator(".qkv-sum").inner_text().replace("\n", " "))


def test_a_clicked_cell_is_written_out(lesson):
    picture = lesson.panel.locator("img.qkv-picture")
    box = AttentionPanel(chapter.sentence)._heatmaps["weights"].ax.get_window_extent()
    picture.click(position={"x": box.x0 + 0.5 * box.width / 4, "y": 492 - box.y1 + 2.5 * box.height / 4})
    lesson.panel.get_by_text('"sat" asks "the": score = q · k').wait_for()
    assert lesson.panel.get_by_label("query").input_value() == "3 sat"


def test_the_code_to_copy_is_there(lesson):
    toggle, area = lesson.panel.get_by_text("Show this state as code"), lesson.panel.locator("textarea")
    assert not area.is_visible()
    toggle.click()
    area.wait_for()
    assert area.input_value() == AttentionPanel(chapter.sentence).code
    toggle.click()
    area.wait_for(state="hidden")


def test_tab_reaches_every_control_and_each_has_a_name(lesson):
    lesson.panel.get_by_role("button", name="Chapter").focus()
    reached = []
    for _ in range(60):
        reached.append(
            lesson.page.evaluate("""() => {
                const e = document.activeElement;
                const label = e.labels && e.labels[0] ? e.labels[0].textContent : '';
                return e.getAttribute('aria-label') || label || e.textContent.trim(); }""")
        )
        lesson.page.keyboard.press("Tab")
    cells = [f"{W} row {i} column {j}" for W in ("W_Q", "W_K") for i in (1, 2, 3) for j in (1, 2, 3, 4)]
    wanted = ["Chapter", "Identity", "Zeros", "Random", "seed", "Reset"]
    wanted += [name for cell in cells for name in (cell, f"{cell}, typed")] + ["query", "key"]
    assert reached[: len(wanted)] == wanted
    assert reached[len(wanted)] == "Show this state as code"
    for cell in cells:
        handle = lesson.page.get_by_role("slider", name=cell, exact=True).first
        assert re.fullmatch(r"-?\d\.\d\d?|-?\d", handle.get_attribute("aria-valuetext"))


def test_sliders_and_heatmaps_are_on_screen_together(lesson):
    parts = lesson.panel.locator("img.qkv-picture, .qkv-cell, .qkv-live p, .qkv-sum")
    frame = lesson.page.locator(".jp-WindowedPanel-outer").bounding_box()
    boxes = [parts.nth(i).bounding_box() for i in range(parts.count())]
    assert len(boxes) == 24 + 3
    for box in boxes:
        assert box["x"] >= frame["x"]
        assert box["x"] + box["width"] <= frame["x"] + frame["width"]
        assert box["y"] >= frame["y"]
        assert box["y"] + box["height"] <= frame["y"] + frame["height"]
    tracks = lesson.panel.locator(".qkv-cell .noUi-target")
    assert min(tracks.nth(i).bounding_box()["width"] for i in range(24)) >= 80


CONTRAST = """element => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    const bytes = colour => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
                              return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .04045 ? v / 12.92
                         : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
    let behind = element, back;
    do { back = bytes(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; } while (back[3] < 255);
    const [a, b] = [light(bytes(getComputedStyle(element).color)), light(back)];
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); }"""


@pytest.mark.parametrize("theme", ["Dark", "Light"])
def test_both_themes_are_readable(lesson, theme):
    lesson.menu("Settings", ":has-text('Theme') >> nth=0", f":has-text('JupyterLab {theme}') >> nth=0")
    lesson.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{'true' if theme == 'Light' else 'false'}'")
    lesson.page.wait_for_timeout(500)
    texts = lesson.panel.locator(".widget-readout, .qkv-head .widget-html-content, .qkv-live p, .qkv-sum p, button")
    assert texts.count() > 40
    assert min(texts.nth(i).evaluate(CONTRAST) for i in range(texts.count())) >= 4.5


def test_a_prediction_by_keyboard(lesson):
    question = lesson.page.locator(".qkv-panel", has_text="With the chosen W_Q and W_K").last
    question.evaluate("element => element.scrollIntoView()")
    assert "0.751" not in question.inner_text()
    question.get_by_role("radiogroup", name="With the chosen W_Q and W_K").get_by_role("radio").first.focus()
    lesson.page.keyboard.press("ArrowDown")
    lesson.page.keyboard.press("Tab")
    lesson.page.keyboard.press("Enter")
    question.get_by_text("✔ Yes.").wait_for()
    assert "0.751" in question.inner_text()


def test_a_challenge_is_won_with_the_sliders(lesson):
    lesson.show(1)
    assert lesson.panel.get_by_text("○ not yet:").count() == 3
    lesson.panel.get_by_role("button", name="Zeros").click()
    for name in ("W_Q row 1 column 1", "W_K row 1 column 1"):
        lesson.handle(name).focus()
        lesson.page.keyboard.press("End")
    lesson.panel.get_by_text('✔ reached: "the" looks mostly at itself').wait_for()
    lesson.settled()
    assert lesson.panel.get_by_text("○ not yet:").count() == 2


def write(lab, name, *sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), lab.folder / "notebooks" / name)


BREAK = """
def fails(*args, **options):
    raise ValueError("the chalk broke")

works, panels.attention = panels.attention, fails
print("broken")
"""


def test_a_failing_redraw_says_so_in_the_page_and_recovers(lab, browser):
    write(
        lab,
        "failing.ipynb",
        "from qkvlib import AttentionPanel, chapter, panels\nAttentionPanel(chapter.sentence)",
        BREAK,
        "panels.attention = works\nprint('mended')",
    )
    opened = Page(lab, browser, "failing.ipynb")
    opened.run_cell(0)
    opened.show()
    opened.panel.locator("canvas").wait_for()
    opened.page.wait_for_timeout(500)
    good = opened.png()
    opened.run_cell(1)
    opened.page.get_by_text("broken", exact=True).wait_for()
    opened.show()
    opened.handle("W_Q row 1 column 1").focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.get_by_role("alert").get_by_text("the chalk broke").wait_for()
    assert opened.png() == good
    opened.run_cell(2)
    opened.page.get_by_text("mended", exact=True).wait_for()
    opened.show()
    opened.handle("W_Q row 1 column 1").focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.get_by_role("alert").wait_for(state="detached")
    W_Q, _ = opened.settled()
    assert W_Q[0, 0] == pytest.approx(-0.52)
    opened.page.close()


COLLECT = """
window.seen = [];
let waiting = false;
const put = CanvasRenderingContext2D.prototype.putImageData;
CanvasRenderingContext2D.prototype.putImageData = function (...rest) {
  put.apply(this, rest);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { // as this frame shows it
    waiting = false;
    const {width, height} = this.canvas;
    crypto.subtle.digest('SHA-256', this.getImageData(0, 0, width, height).data).then(hash =>
      seen.push([...new Uint8Array(hash)].map(byte => byte.toString(16).padStart(2, '0')).join('')));
  });
};
null;
"""
BUSY = """
import itertools, matplotlib.pyplot as plt, os
for number in itertools.count():
    if os.path.exists("enough"):
        break
    fig = plt.figure()
    fig.text(0.5, 0.5, f"figure {number}")
    if number % 100 == 0:  # while axes are built and drawn few pictures come through
        fig.subplots(2, 2)[0, 0].plot(range(10))
    fig.canvas.draw()
    plt.close(fig)
print("no longer busy")
"""


def test_while_a_cell_builds_figures_no_picture_of_200_is_blank_torn_or_mixed(lab, browser):
    setup = "from qkvlib import AttentionPanel, chapter\nAttentionPanel(chapter.sentence)"
    write(lab, "busy.ipynb", "%matplotlib inline\n" + setup, BUSY)
    opened = Page(lab, browser, "busy.ipynb")
    opened.run_cell(0)
    opened.show()
    opened.panel.locator("canvas").wait_for()
    opened.page.evaluate(COLLECT)
    opened.page.locator(".jp-CodeCell").nth(1).locator(".cm-content").click()
    opened.page.keyboard.press("Shift+Enter")
    opened.show()
    opened.handle("W_Q row 1 column 1").focus()
    presses, began = 0, time.monotonic()
    while opened.page.evaluate("seen.length") < 200 and time.monotonic() < began + 400:
        opened.page.keyboard.press("ArrowRight" if presses % 400 < 200 else "ArrowLeft")
        opened.page.wait_for_timeout(20)
        presses += 1
    assert opened.page.get_by_text("no longer busy", exact=True).count() == 0
    (lab.folder / "notebooks" / "enough").touch()
    opened.page.get_by_text("no longer busy", exact=True).wait_for()
    opened.show()
    W_Q, _ = opened.settled()

    expected, panel = set(), AttentionPanel(chapter.sentence)
    for step in range(-5, 206):
        W_Q[0, 0] = round(-0.54 + step / 100, 2)
        panel.W_Q = W_Q
        pixels = np.asarray(Image.open(io.BytesIO(panel.picture.png)))
        expected.add(hashlib.sha256(pixels.tobytes()).hexdigest())
    seen = opened.page.evaluate("seen")
    print(f"{len(seen)} pictures seen, {len(set(seen))} different, in {presses} presses")
    assert len(seen) >= 200
    assert len(set(seen)) > 30
    assert set(seen) <= expected
    opened.page.close()


LEARN = (
    "from qkvlib import AttentionPanel, TrainingPanel, chapter\npanel = TrainingPanel(chapter.sentence)\npanel",
    "AttentionPanel(chapter.sentence)",
    "import time\nbegan = len(panel.states)\ntime.sleep(2)\nprint(len(panel.states) - began, 'steps meanwhile')",
)


def trained(step):
    """The caption that the training panel should have after so many steps."""
    s = chapter.sentence
    loss, start = pattern_loss(np.eye(4)[[1, 1, 2, 3]]), small_random(0, (3, 4), (3, 4))
    steps = train(s.X, *start, s.W_V, loss, method="gradient descent", rate=1.0)
    state = next(itertools.islice(steps, step, None))
    weights = oracle.attention(s.X, state.W_Q, state.W_K, s.W_V)[1]
    return f"Step {step} of 200, loss {state.loss:.3f}: {describe(weights, s.words)}"


def test_matrices_learn_while_a_cell_runs_and_other_sliders_move(lab, browser):
    write(lab, "learn.ipynb", *LEARN)
    opened = Page(lab, browser, "learn.ipynb")
    opened.run_cell(0)
    opened.run_cell(1)
    opened.show()
    assert opened.caption() == trained(0)
    play = opened.panel.get_by_role("button", name="Play")
    play.press("Enter")
    opened.panel.get_by_text(re.compile(r"Step \d\d ")).wait_for()
    opened.panel.get_by_role("button", name="Pause").press("Enter")
    play.wait_for()
    opened.page.wait_for_timeout(500)
    paused = opened.caption()
    opened.page.wait_for_timeout(1000)
    assert opened.caption() == paused == trained(int(paused.split()[1]))

    play.press("Enter")
    opened.run_cell(2)
    meanwhile = opened.page.get_by_text("steps meanwhile", exact=False).last
    meanwhile.wait_for()
    assert int(re.search(r"(\d+) steps meanwhile", meanwhile.inner_text())[1]) > 10
    opened.show(1)
    opened.handle("W_Q row 2 column 1").press("PageUp")
    W_Q, _ = opened.settled()
    assert W_Q[1, 0] == pytest.approx(1.06)
    opened.show(0)
    opened.panel.get_by_text("Step 200 of 200").wait_for()
    assert opened.caption() == trained(200)
    play.wait_for()

    opened.handle("step shown").press("Home")
    opened.panel.get_by_text("Step 0 of 200").wait_for()
    assert opened.caption() == trained(0)
    assert opened.errors == []
    opened.page.close()
