"""The fast path against matplotlib's own drawing, and what happens when a redraw fails."""

import asyncio
import base64
import io
import json
import subprocess
import sys
import threading
import zlib

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from qkvlib.live import LivePicture
from qkvlib.plots import heatmap


def figure(dpi, shape):
    """Two heatmaps that do not fill their cells with whole pixels, and a rectangle on top."""
    figure = Figure((6, 2.5), dpi)
    maps = [heatmap(figure.add_axes((x, 0.2, 0.35, 0.6)), np.zeros(shape), kind=kind, limit=4, title="$x$")
            for x, kind in ((0.1, "signed"), (0.6, "weights"))]  # fmt: skip
    box = maps[0].ax.add_patch(Rectangle((0, 0), 1, 1, fill=False, linewidth=3, clip_on=False, zorder=9))
    return figure, maps, [*maps[0].artists, *maps[1].artists, box]


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png))).astype(int)


def walk(steps, shape):
    """States as a wandering slider makes them: signed numbers and shares, small moves."""
    random = np.random.default_rng(20)
    signed, shares = random.normal(size=shape), random.random(shape)
    for _ in range(steps):
        signed = np.clip(signed + random.normal(size=shape) * 0.2, -4, 4)
        shares = np.clip(shares + random.normal(size=shape) * 0.05, 0, 1)
        yield signed, shares


@pytest.mark.skipif(matplotlib.__version__ < "3.11", reason="older ones place edges of cells a pixel higher or lower")
@pytest.mark.parametrize("shape", [(4, 3), (19, 23)])
@pytest.mark.parametrize("dpi", [100, 200])
def test_a_redraw_equals_a_full_draw(dpi, shape):
    # To the pixel; the edges of letters may differ by 1 of 255, since a stamped letter's share of its
    # pixel was rounded to a byte once more than a drawn one's.
    live, maps, artists = figure(dpi, shape)
    picture = LivePicture(live, artists)
    full, full_maps, _ = figure(dpi, shape)
    canvas = FigureCanvasAgg(full)

    def change(maps, state):
        for drawn, matrix in zip(maps, state, strict=True):
            drawn.update(matrix)
        return "a caption", ""

    for state in walk(100 if (dpi, shape) == (100, (4, 3)) else 25, shape):
        picture.update(lambda state=state: change(maps, state))
        change(full_maps, state)
        canvas.draw()
        difference = np.abs(pixels(picture.png) - np.asarray(canvas.buffer_rgba()).astype(int))
        assert difference.max() <= 1


def live(limit=1.0):
    """A picture of one number, and how to change it."""
    made = Figure((2, 2))
    drawn = heatmap(made.add_axes((0.2, 0.2, 0.7, 0.7)), [[0.0]], kind="signed", limit=limit)
    picture = LivePicture(made, drawn.artists)

    def show(value):
        drawn.update([[value]])
        return f"the number is {value}", "<b>details</b>"

    return picture, show


def test_a_redraw_that_fails_says_so_and_keeps_the_last_good_picture(caplog):
    picture, show = live()
    picture.update(lambda: show(0.25))
    good, caption = picture.png, picture.caption

    def fail():
        show(0.75)
        raise ValueError("W_Q: <expected> something else")

    picture.update(fail)
    message = picture.widget.children[2]
    assert (picture.png, picture.caption, picture.widget.children[0].value) == (good, caption, good)
    assert "W_Q: &lt;expected&gt; something else" in message.value
    assert "could not be redrawn" in caplog.text

    picture.update(lambda: show(0.5))
    assert message.value == ""
    assert picture.png != good
    assert "the number is 0.5" in picture.widget.children[1].value


def test_words_follow_the_picture_where_an_event_loop_runs():
    picture, show = live()

    async def redraw():
        picture.update(lambda: show(0.25))
        assert picture.png == picture.widget.children[0].value != b""
        assert picture.widget.children[1].value == ""
        picture.update(lambda: show(0.5))
        await asyncio.sleep(0.1)
        return picture.widget.children[1].value

    assert "the number is 0.5</p><b>details</b>" in asyncio.run(redraw())


class Painter:
    """What page.js does with patches, written again: paints what the kernel sends."""

    def __init__(self, picture):
        self.last, self.canvas = None, None
        picture.widget.children[3].observe(lambda change: self.paint(**json.loads(change["new"])), "value")

    def paint(self, number, size, patches, rows):
        assert size or number == self.last + 1
        self.last, self.areas = number, [left_top_width[:3] for left_top_width in patches]
        if size:
            self.canvas = np.zeros((size[1], size[0]), np.uint32)
        data = np.frombuffer(zlib.decompress(base64.b64decode(rows)), np.uint32)
        for left, top, width, times in patches:
            unique, data = data[: len(times) * width].reshape(-1, width), data[len(times) * width :]
            self.canvas[top : top + sum(times), left : left + width] = np.repeat(unique, times, axis=0)
        assert data.size == 0


@pytest.mark.parametrize("dpi", [100, 150])
def test_the_patches_make_the_picture(dpi):
    made, maps, artists = figure(dpi, (4, 3))
    picture, box = LivePicture(made, artists), artists[-1]
    page, random = Painter(picture), np.random.default_rng(3)

    def change(state, place):
        for drawn, matrix in zip(maps, state, strict=True):
            drawn.update(matrix)
        box.set_xy(place)
        return "a caption", ""

    for step, state in enumerate(walk(60, (4, 3))):
        picture.update(lambda state=state: change(state, random.integers(-1, 2, 2) + 0.5))
        if step in (3, 30):  # a page opens, a second one opens on a denser screen
            picture.widget.children[4].value = f"screen {1 + step % 2} {step}"
        if step > 3:
            shown = page.canvas.view(np.uint8).reshape(*page.canvas.shape, 4)
            np.testing.assert_array_equal(shown, pixels(picture.png))


def test_where_nothing_changes_nothing_is_sent():
    picture, show = live()
    picture.update(lambda: show(0.25))
    page = Painter(picture)
    picture.widget.children[4].value = "screen 1 0"
    picture.update(lambda: show(0.25))
    assert page.areas == []
    picture.update(lambda: show(0.5))
    assert len(page.areas) == 1


def test_the_image_follows_once_all_rests():
    picture, show = live()
    picture.update(lambda: show(0.25))
    picture.widget.children[4].value = "screen 1 0"
    image = picture.widget.children[0]

    async def redraw():
        before = image.value
        for value in np.linspace(0.3, 0.9, 7):  # moved on within the time that it rests
            picture.update(lambda value=value: show(value))
            await asyncio.sleep(0.1)
            assert image.value == before
        while image.value == before:
            await asyncio.sleep(0.05)
        assert image.value == picture.png

    asyncio.run(asyncio.wait_for(redraw(), 20))


def test_captions_are_literal():
    picture, _ = live()
    picture.update(lambda: ('"<b>" & "$x$"', ""))
    assert "&quot;&lt;b&gt;&quot; &amp; &quot;$x$&quot;" in picture.widget.children[1].value


def test_a_denser_screen_gets_a_sharper_picture_of_the_same_size_on_the_page():
    picture, show = live()
    picture.update(lambda: show(0.25))
    image, heard = picture.widget.children[0], picture.widget.children[4]
    before = pixels(picture.png).shape
    heard.value = "screen 2 1.5"
    assert pixels(picture.png).shape == (2 * before[0], 2 * before[1], 4)
    assert image.layout.width == f"{before[1]}px"
    heard.value = "screen 50 2.5"
    assert pixels(picture.png).shape[0] == 3 * before[0]
    heard.value = "screen 0.3 3.5"
    assert pixels(picture.png).shape == before


def test_two_threads_never_mix_their_pictures():
    picture, show = live(limit=100)
    wanted = {}
    for value in range(20):
        picture.update(lambda value=value: show(value))
        wanted[picture.caption] = picture.png
    seen = []
    picture.widget.children[0].observe(lambda change: seen.append(change["new"]), "value")

    def run(values):
        for value in values:
            picture.update(lambda value=value: show(value))

    threads = [threading.Thread(target=run, args=(list(range(start, 20, 2)) * 10,)) for start in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) > 100
    assert set(seen) <= set(wanted.values())
    assert picture.png == wanted[picture.caption]


def test_numbers_can_be_prepared_without_changing_the_picture():
    picture, show = live(limit=2.5)
    text = picture._artists[1]
    text.set_fontsize(7.77)  # a kind of its own
    picture.update(lambda: show(0.25))
    before = text.get_text(), text.get_color()
    strings = [(f"{value / 100:.2f}", "white") for value in range(30)]

    async def prepare():
        picture.prepare(text, strings)
        while not {string for string, _ in strings} <= {string for string, _ in picture._places[text][2]}:
            await asyncio.sleep(0.01)

    assert len(picture._places[text][2]) < 5
    asyncio.run(asyncio.wait_for(prepare(), 20))
    assert (text.get_text(), text.get_color()) == before
    png = picture.png
    picture.update(lambda: show(0.25))
    assert picture.png == png


def test_few_bitmaps_are_kept_and_a_number_drawn_again_is_the_same(monkeypatch):
    monkeypatch.setattr("qkvlib.live.MOST_BITMAPS", 3)
    picture, show = live(limit=3.5)
    text, pictures = picture._artists[1], {}
    text.set_fontsize(7.78)  # a kind of its own
    for value in [0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.4, 0.2]:
        picture.update(lambda value=value: show(value))
        assert pictures.setdefault(value, picture.png) == picture.png
        assert len(picture._places[text][2]) <= 3
    assert len(set(pictures.values())) == 5


def test_pyplot_never_learns_of_it():
    picture, show = live()
    for value in np.linspace(-1, 1, 50):
        picture.update(lambda value=value: show(value))
    assert pyplot.get_fignums() == []


WALK = """
import asyncio, json, numpy, psutil
from matplotlib import pyplot
from qkvlib import AttentionPanel, chapter, live

async def walk():  # as in a kernel, where numbers are drawn ahead and the resting picture is made later
    panel, random, held, known = AttentionPanel(chapter.sentence), numpy.random.default_rng(20), [], -1
    panel.picture.widget.children[4].value = "screen 1 0"  # as a page says when it opens
    sliders = [slider for matrix in panel._sliders.values() for slider in matrix._sliders]
    panel.prepare()
    while known != (known := sum(map(len, live._BITMAPS.values()))):
        await asyncio.sleep(0.5)
    given = [slider.value for slider in sliders]
    for step in range(4_001):
        number = random.integers(len(sliders))
        sliders[number].value = round(given[number] + random.normal() * 0.5, 2)
        await asyncio.sleep(0)
        if step in (500, 4_000):
            held.append(psutil.Process().memory_info().rss / 1e6)
    print(json.dumps({"grown": held[1] - held[0], "open": pyplot.get_fignums()}))

asyncio.run(walk())
"""


def test_four_thousand_redraws_leave_nothing_behind():
    found = json.loads(subprocess.check_output([sys.executable, "-c", WALK], text=True))
    assert found["open"] == []
    assert found["grown"] < 2  # MB
