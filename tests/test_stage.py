"""The whole talk in a real browser, by keyboard alone: as Voila shows it, and in JupyterLab."""

import base64
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from conftest import ROOT, chromium, free_port, load_tool
from PIL import Image
from playwright.sync_api import expect
from test_browser import Page

from qkvlib import page

pytestmark = pytest.mark.browser
handout = load_tool("handout")
AXE = "axe-core@4.14.1"
SIZES = [float(zoom) for zoom in re.findall(r"zoom: ([\d.]+)", page._STYLE)]


@pytest.fixture(scope="module")
def voila(tmp_path_factory):
    """`make lecture` on a copy of the notebook; gives its address."""
    chromium()
    folder = tmp_path_factory.mktemp("talk é")
    notebook = shutil.copy(ROOT / "notebooks" / "lecture.ipynb", folder)
    port, tools = free_port(), str(ROOT / "tools")
    script = f"import sys; sys.path.insert(0, {tools!r}); import lecture; lecture.serve(sys.argv[1], sys.argv[2:])"
    with (folder / "voila.log").open("w") as log:
        running = subprocess.Popen([sys.executable, "-c", script, notebook, "--no-browser", f"--port={port}"],
                                   stdout=log, stderr=log)  # fmt: skip
    address = f"http://127.0.0.1:{port}/"
    _answers(port)
    yield address, running
    running.terminate()
    running.wait(30)


def _answers(port):
    for _ in range(150):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
    raise RuntimeError("Voila did not start")


def _children(process):
    return [int(pid) for pid in subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True).stdout.split()]


class Stage:
    """A page with the talk on it."""

    def __init__(self, page):
        self.page, self.errors, self.outside = page, [], []
        self.talk = page.locator(".qkv-talk")
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: self.outside.append(r.url) if not _here(r.url) else None)

    def open(self, address):
        self.page.goto(address)
        self.ready()

    def ready(self):
        self.page.locator(".qkv-talk canvas").first.wait_for(timeout=60_000)
        self.page.wait_for_timeout(500)

    def title(self):
        return self.page.locator(".qkv-title").inner_text()

    def press(self, key, title=None):
        self.page.keyboard.press(key)
        if title:
            self.page.locator(".qkv-title", has_text=title).wait_for()

    def pixels(self):
        data = self.page.evaluate("document.querySelector('.qkv-talk canvas').toDataURL().split(',')[1]")
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))

    def shows(self, expected):
        """Wait until the picture is the expected one, pixel by pixel."""
        wanted = np.asarray(Image.open(io.BytesIO(expected)).convert("RGB"))
        for _ in range(100):
            if self.page.locator(".qkv-talk canvas").count() == 1:
                got = self.pixels()
                if got.shape == wanted.shape and np.array_equal(got, wanted):
                    return True
            self.page.wait_for_timeout(100)
        return False


def _here(address):
    return address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))


@pytest.fixture
def stage(voila, browser):
    made = Stage(browser.new_page(viewport={"width": 1366, "height": 768}))
    made.open(voila[0])
    made.page.get_by_label("scene").select_option(index=0)
    made.page.keyboard.press("Escape")
    made.page.locator(".qkv-title", has_text="1 / 15").wait_for()
    yield made
    made.page.close()


@pytest.fixture(scope="module")
def expected():
    """Each scene and its picture, from a talk of its own; in a thread, since here Playwright's event loop runs."""

    def pictures():
        talk = handout.scenes(ROOT / "notebooks" / "lecture.ipynb")
        for at, scene in enumerate(talk.scenes):
            talk.go(at)
            yield scene, talk.panel.picture.png

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: list(pictures())).result()


def every_scene(stage, expected):
    keys = ("PageDown", " ", "ArrowRight")
    for at, (scene, picture) in enumerate(expected):
        if at:
            stage.press(keys[at % 3], f"{at + 1} / 15 {scene.title}")
        assert stage.shows(picture), scene.title
        assert stage.talk.get_by_text(scene.answer, exact=True).count() == 0
        stage.press("a")
        stage.talk.get_by_text(scene.answer, exact=True).wait_for()
        assert stage.talk.get_by_role("alert").count() == 0
    for at, key in ((14, "PageUp"), (13, "ArrowLeft")):
        stage.press(key, f"{at} / 15")


def test_the_whole_talk_by_keyboard_in_voila(stage, expected):
    every_scene(stage, expected)
    assert stage.outside == []
    assert stage.errors == []


def test_the_whole_talk_by_keyboard_in_jupyterlab(lab, browser, expected):
    opened = Page(lab, browser, "lecture.ipynb")
    opened.page.keyboard.press("Control+b")
    opened.run_until(opened.page.locator(".qkv-talk canvas"))
    stage = Stage(opened.page)
    stage.talk.evaluate("talk => talk.scrollIntoView()")
    stage.page.locator(".qkv-title").click()  # then the keys are the talk's
    cells = stage.page.locator(".jp-Cell").count()
    every_scene(stage, expected)
    for key in "nb":  # in JupyterLab B would make a new cell
        stage.press(key)
        stage.page.wait_for_timeout(300)
        stage.press(key)
    assert stage.page.locator(".jp-Cell").count() == cells
    assert opened.errors == []
    stage.page.reload()
    stage.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    opened.run_until(stage.page.locator(".qkv-talk canvas"))
    assert stage.title().startswith("13 / 15")  # it opens where it was
    stage.page.get_by_label("scene").select_option(index=0)
    opened.page.close()


def test_a_slider_keeps_its_keys_and_what_it_moved_until_reset(stage):
    handle = stage.talk.get_by_role("slider", name="W_Q row 1 column 1", exact=True)
    handle.focus()
    stage.press("PageUp")
    stage.press("ArrowRight")
    stage.page.wait_for_timeout(500)
    assert stage.title().startswith("1 / 15")
    moved = handle.get_attribute("aria-valuetext")
    assert float(moved) == pytest.approx(-0.54 + 0.06)
    stage.press("Escape")
    stage.press("PageDown", "2 / 15")
    stage.press("PageUp", "1 / 15")
    handle.wait_for()
    stage.page.wait_for_timeout(800)
    assert handle.get_attribute("aria-valuetext") == moved
    stage.press("r")
    expect(handle).to_have_attribute("aria-valuetext", "-0.54")


def test_blank_notes_and_sliders_come_and_go_and_nothing_jumps(stage):
    picture = stage.talk.locator("img.qkv-picture")
    before = picture.bounding_box()
    stage.press("b")
    stage.page.wait_for_timeout(500)
    assert not np.asarray(Image.open(io.BytesIO(stage.page.screenshot()))).any(axis=(0, 1))[:3].any()
    stage.press("b")
    stage.press("n")
    stage.talk.get_by_text("min since the start").wait_for()
    notes = stage.page.locator(".qkv-notes").bounding_box()
    assert notes["y"] + notes["height"] <= 768
    assert picture.bounding_box() == before
    stage.press("n")
    stage.press("a")
    stage.talk.get_by_text("chosen by hand so that it does").wait_for()
    assert picture.bounding_box() == before
    stage.press("s")
    stage.talk.locator(".qkv-controls").wait_for(state="hidden")
    stage.press("s")
    stage.talk.locator(".qkv-controls").wait_for()


def test_reload_and_a_server_that_dies_bring_the_same_scene_back(voila, stage):
    stage.press("PageDown", "2 / 15")
    stage.press("PageDown", "3 / 15")
    stage.page.reload()
    stage.ready()
    assert stage.title().startswith("3 / 15")
    address, running = voila
    (server,) = _children(running)
    os.kill(server, 9)
    for _ in range(100):
        if _children(running) not in ([], [server]):
            break
        time.sleep(0.2)
    for _ in range(150):
        try:
            urllib.request.urlopen(address, timeout=60).close()
            break
        except OSError:
            time.sleep(0.2)
    stage.page.reload()
    stage.ready()
    assert stage.title().startswith("3 / 15")


def test_a_killed_kernel_is_said_with_the_key_that_brings_the_scene_back(voila, stage):
    stage.press("PageDown", "2 / 15")
    lost = stage.talk.get_by_role("alert").filter(has_text="Python does not answer")
    stage.page.wait_for_timeout(6000)
    assert lost.count() == 0
    _, running = voila
    kernels = [each for each in psutil.Process(running.pid).children(recursive=True)
               if "ipykernel_launcher" in each.cmdline()]  # fmt: skip
    for kernel in kernels:
        kernel.kill()
    stage.press("PageDown")
    said = "Python does not answer, so keys do nothing. Press F5: the talk comes back at this scene."
    expect(lost).to_have_text(said, timeout=15_000)
    assert stage.title().startswith("2 / 15")
    stage.page.reload()  # what F5 does
    stage.ready()
    assert stage.title().startswith("2 / 15")
    stage.press("PageDown", "3 / 15")
    assert lost.count() == 0


def test_at_the_largest_size_the_picture_fits_a_small_projector_and_is_sharp(stage):
    stage.page.set_viewport_size({"width": 1024, "height": 768})
    stage.press("s")
    for zoom in SIZES:
        stage.press("t")
        for _ in range(50):
            box = stage.talk.locator("img.qkv-picture").bounding_box()
            canvas = stage.talk.locator("canvas").evaluate("it => it.width")
            if abs(canvas - 600 * zoom) <= 1 and abs(box["width"] - 600 * zoom) < 25:
                break
            stage.page.wait_for_timeout(100)
        assert canvas == pytest.approx(600 * zoom, abs=1)  # as many pixels as the screen has for it
        assert box["x"] + box["width"] <= 1024
    assert stage.page.evaluate("document.documentElement.scrollWidth") <= 1024
    stage.talk.locator("img.qkv-picture").click(position={"x": 0.9 * box["width"], "y": 0.25 * box["height"]})
    expect(stage.page.get_by_label("key", exact=True)).to_have_value("4 down")
    stage.press("t")


def test_numbers_in_cells_are_3_percent_of_the_picture_at_the_largest_size():
    talk, measured = handout.scenes(ROOT / "notebooks" / "lecture.ipynb"), {}
    for at, scene in enumerate(talk.scenes):
        talk.go(at)
        figure = talk.panel.picture.figure
        texts = [text for ax in figure.axes for text in ax.texts if re.search(r"\d\.\d\d", text.get_text())]
        measured[scene.title] = min(text.get_fontsize() for text in texts) * 100 / 72 * SIZES[-1] / 768
    print({title: f"{share:.1%}" for title, share in measured.items()})
    assert min(measured.values()) >= 0.03


def test_high_contrast_is_black_on_white_in_a_dark_theme_too(stage):
    stage.page.evaluate("""() => { for (const name of ['ui', 'content'])
        document.body.style.setProperty(`--jp-${name}-font-color1`, 'white');
        document.body.style.setProperty('--jp-widgets-color', 'white');
        document.body.style.setProperty('--jp-layout-color2', '#333'); }""")
    stage.press("n")
    stage.press("c")
    stage.page.wait_for_timeout(500)
    colours = stage.talk.evaluate("""talk => [...talk.querySelectorAll('h2, p, button, label, .widget-readout')]
        .filter(it => it.offsetParent).map(it => getComputedStyle(it).color)""")
    assert len(colours) > 30
    assert set(colours) == {"rgb(0, 0, 0)"}
    backgrounds = stage.talk.evaluate("""talk => [talk, ...talk.querySelectorAll('button')]
        .map(it => getComputedStyle(it).backgroundColor)""")
    assert set(backgrounds) == {"rgb(255, 255, 255)"}


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    if not shutil.which("npm"):
        reason = "npm not found, which brings axe-core: install Node.js and run make test again"
        (pytest.fail if os.environ.get("QKV_REQUIRE_BROWSER") else pytest.skip)(reason)
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", AXE, "--silent"], cwd=folder, check=True, capture_output=True, timeout=120)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        return archive.extractfile("package/axe.min.js").read().decode()


@pytest.mark.parametrize("contrast", [False, True])
def test_axe_finds_no_serious_fault_in_any_scene(stage, axe, contrast):
    stage.page.evaluate(axe + "; null;")
    if contrast:
        stage.press("c")
    stage.press("n")
    found = {}
    for at in range(3 if contrast else 15):  # in black and white only the page around the pictures differs
        if at:
            stage.press("PageDown", f"{at + 1} / 15")
        stage.page.wait_for_timeout(700)
        faults = stage.page.evaluate("""async () => (await axe.run('.qkv-talk')).violations
            .filter(it => ['serious', 'critical'].includes(it.impact))
            .map(it => [it.id, it.nodes.length, it.nodes[0].html.slice(0, 200)])""")
        if faults:
            found[at + 1] = faults
    assert found == {}
