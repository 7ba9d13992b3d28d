"""Measure the live engine in a real JupyterLab and Chromium: python tools/bench.py, or make bench.

Four ways to redraw the same four heatmaps (W_Q, W_K, scores, weights of section 20.4) take turns in one run, so
that noise hits all alike. The echo, a slider that writes a text through the kernel and draws nothing, is the floor.
"""

import asyncio
import json
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from statistics import median

import nbformat
import numpy as np
from playwright.async_api import TimeoutError as PlaywrightTimeout
from playwright.async_api import async_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from conftest import FLAGS, Lab, chromium  # noqa: E402, the tests' own JupyterLab and browser

PRESSES, ROUNDS, DRAG = 20, 3, 3.0  # presses a round and way; rounds; seconds of dragging, each round

COMMON = """
import time, json, numpy as np, ipywidgets as w
from functools import wraps
from IPython.display import display
from qkvlib import AttentionPanel, attention, chapter
times, s = [], chapter.sentence
def timed(f):
    @wraps(f)
    def run(*args, **kwargs):
        start = time.perf_counter(); out = f(*args, **kwargs); times.append(time.perf_counter() - start)
        return out
    return run
def slider(): return w.FloatSlider(-0.54, min=-4, max=4, step=0.01, layout={"width": "400px"})
def matrices(value):
    W_Q = s.W_Q.copy(); W_Q[0, 0] = value
    a = attention(s.X, W_Q, s.W_K, s.W_V)
    return W_Q, s.W_K, a.scores, a.weights
STYLE = [("RdBu_r", -4, 4)] * 3 + [("viridis", 0, 1)]
"""
FIGURE = """
import matplotlib.pyplot as plt
def draw(fig, axes, value):
    out = []
    for ax, m, (cmap, low, high) in zip(axes.flat, matrices(value), STYLE):
        image = ax.imshow(m, cmap=cmap, vmin=low, vmax=high, aspect="auto")
        texts = [ax.text(j, i, f"{m[i, j]:.2f}", ha="center", va="center") for i, j in np.ndindex(m.shape)]
        out.append((image, texts))
    return out
"""
WAYS = {
    "echo": """
x, label = slider(), w.Label("-0.54"); label.add_class("bench-echo")
x.observe(timed(lambda change: setattr(label, "value", f"{change['new']:.2f}")), "value")
display(w.VBox([x, label]))""",
    "panel": """
panel = AttentionPanel(s, show=("W_Q", "W_K", "scores", "weights"))
panel.picture.update = timed(panel.picture.update)
panel""",
    "ipympl": "%matplotlib widget"
    + FIGURE
    + """
fig, axes = plt.subplots(2, 2, figsize=(6, 4.92), dpi=100)
parts = draw(fig, axes, -0.54)
fig.canvas.draw = timed(fig.canvas.draw)
def change(event):
    for (image, texts), m in zip(parts, matrices(event["new"])):
        image.set_data(m)
        for text, number in zip(texts, m.flat): text.set_text(f"{number:.2f}")
    fig.canvas.draw_idle()
x = slider(); x.observe(change, "value"); display(x)""",
    "interact": "%matplotlib inline"
    + FIGURE
    + """
@timed
def show(value):
    fig, axes = plt.subplots(2, 2, figsize=(6, 4.92), dpi=100)
    draw(fig, axes, value); plt.show()
_ = w.interact(show, value=slider())""",
}
NAMES = {
    "echo": "echo (the floor)",
    "panel": "the course's panel",
    "ipympl": "ipympl, set_data and draw_idle",
    "interact": "interact, new figure, plt.show",
}

# Times are taken when the frame that has the new picture has been presented, by the page's own clock.
PROBE = """
window.bench = {frames: [], armed: null};
bench.changed = () => requestAnimationFrame(frame => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => {
    if (bench.frames.at(-1)?.frame !== frame) bench.frames.push({frame, at: performance.now()});
    if (bench.armed) { bench.armed(performance.now()); bench.armed = null; }
  };
  channel.port2.postMessage(0);
});
bench.press = () => new Promise(resolve => {
  addEventListener('keydown', event => {
    bench.armed = at => resolve(at - event.timeStamp);
    setTimeout(() => resolve(null), 5000);
  }, {capture: true, once: true});
});
document.addEventListener('load', event => { // the course's image follows, hidden, under what its page paints
  if (event.target.tagName === 'IMG' && !event.target.closest('.qkv-live')) bench.changed();
}, true);
for (const name of ['drawImage', 'putImageData']) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...rest) {
    bench.changed();
    return draw.apply(this, rest);
  };
}
const echo = document.querySelector('.bench-echo');
if (echo) new MutationObserver(bench.changed).observe(echo, {childList: true, characterData: true, subtree: true});
addEventListener('pointerup', event => { bench.released = event.timeStamp; }, true);
"""


class Way:
    """One way to redraw, open in a page of its own, and what was measured of it."""

    def __init__(self, lab, name, ratio=1):
        self.lab, self.name, self.ratio = lab, name, ratio
        self.press, self.rates, self.tails, self.bytes = [], [], [], 0

    async def open(self, browser):
        path = f"{self.name}{self.ratio}.ipynb"
        keep = f"with open('{self.name}{self.ratio}.json', 'w') as file: json.dump([1000 * t for t in times], file)"
        sources = [COMMON + "print('ready')", WAYS[self.name], keep]
        metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), self.lab.folder / "notebooks" / path)
        self.page = await browser.new_page(viewport={"width": 1366, "height": 768}, device_scale_factor=self.ratio)
        self.page.on("websocket", lambda socket: socket.on("framereceived", self.count))
        for patience in (30_000, 90_000):  # nine pages load at once: one whose kernel was lost is loaded again
            await self.page.goto(f"{self.lab.url}/lab/tree/notebooks/{path}?token=t&reset")
            try:
                await self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=patience)
                break
            except PlaywrightTimeout:
                print(f"{self.name}: no idle kernel within {patience / 1000:.0f} s", file=sys.stderr)
        else:
            raise RuntimeError(f"{self.name}: its kernel did not get ready")
        await self.page.wait_for_timeout(1000)
        await self.run(0)
        await self.run(1)
        self.handle = self.page.locator(".noUi-handle").first
        await self.handle.wait_for()
        await self.page.wait_for_timeout(1500)
        await self.page.evaluate(PROBE)
        self.cdp = await self.page.context.new_cdp_session(self.page)

    def count(self, frame):
        self.bytes += len(frame)

    async def run(self, number):
        prompt = self.page.locator(".jp-CodeCell").nth(number).get_by_text(re.compile(r"\[[*\d]+\]:")).first
        for _ in range(10):  # JupyterLab drops what is run in the moment that the kernel connects
            await self.page.locator(".jp-CodeCell .cm-content").nth(number).click()
            await self.page.keyboard.press("Shift+Enter")
            await self.page.wait_for_timeout(1500)
            if await prompt.count():
                break
        await self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=60_000)
        await self.page.wait_for_timeout(500)

    async def presses(self):
        await self.page.bring_to_front()
        await self.handle.focus()
        await self.page.wait_for_timeout(300)
        self.bytes = 0
        for _ in range(PRESSES):
            waiting = asyncio.ensure_future(self.page.evaluate("bench.press()"))
            await asyncio.sleep(0.05 + random.random() * 0.05)  # not in step with the screen's frames
            await self.page.keyboard.press(random.choice(["ArrowRight", "PageUp", "PageDown"]))
            took = await waiting
            if took is None:
                raise RuntimeError(f"{self.name}: no picture within 5 s of a key press")
            self.press.append(took)
        self.per_redraw = self.bytes / PRESSES

    async def drag(self):
        box = await self.page.locator(".noUi-target").first.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        await self.mouse("mousePressed", x, y)  # a click on the track brings the handle to its middle
        await self.mouse("mouseReleased", x, y)
        await self.page.wait_for_timeout(600)
        await self.mouse("mousePressed", x, y)
        await self.page.evaluate("bench.frames = []")
        loop = asyncio.get_running_loop()
        start, sent = loop.time(), []
        while (now := loop.time() - start) < DRAG:
            sent.append(asyncio.ensure_future(self.mouse("mouseMoved", x + 35 * np.sin(4 * now), y)))  # not awaited
            await asyncio.sleep(1 / 60)
        await asyncio.gather(*sent)
        await self.mouse("mouseMoved", x - 20, y)
        await self.mouse("mouseReleased", x - 20, y)
        await self.page.wait_for_timeout(1500)
        released, frames = await self.page.evaluate("[bench.released, bench.frames.map(frame => frame.at)]")
        self.rates.append(sum(at <= released for at in frames) / DRAG)
        self.tails.append(max(0, frames[-1] - released))

    async def mouse(self, kind, x, y):
        event = {"type": kind, "x": float(x), "y": y, "button": "left", "buttons": 1, "clickCount": 1}
        await self.cdp.send("Input.dispatchMouseEvent", event)

    async def kernel(self):
        await self.run(2)
        return json.loads((self.lab.folder / "notebooks" / f"{self.name}{self.ratio}.json").read_text())


async def measure(labs):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        ways = [Way(lab, name) for lab in labs.values() for name in WAYS] + [Way(labs["course"], "panel", 2)]
        for way in ways:
            await way.open(browser)
        for number in range(ROUNDS):
            for way in random.sample(ways, len(ways)):
                await way.presses()
                await way.drag()
            print(f"round {number + 1} of {ROUNDS} done", file=sys.stderr)
        for way in ways:
            way.kernel_ms = median(await way.kernel())
        await browser.close()
    return ways


def table(ways):
    """A Markdown table of the ways on one server; ratios are to its own echo."""
    floor = ways[0]
    p95 = {way: float(np.percentile(way.press, 95)) for way in ways}
    heads = ["way", "kernel ms", "key to pixels: median ms", "p95 ms", "median ÷ floor", "p95 ÷ floor",
             "pictures/s dragging", "release to last picture ms", "KB a redraw"]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for way in ways:
        name = NAMES[way.name] + (" on a screen of double density" if way.ratio == 2 else "")
        middle = median(way.press)
        lines.append(
            f"| {name} | {way.kernel_ms:.1f} | {middle:.0f} | {p95[way]:.0f} | {middle / median(floor.press):.2f} "
            f"| {p95[way] / p95[floor]:.2f} | {median(way.rates):.0f} | {median(way.tails):.0f} "
            f"| {way.per_redraw / 1000:.1f} |"
        )
    return "\n".join(lines)


def in_python(code):
    """What a fresh Python prints, as JSON."""
    return json.loads(subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1])


GROWTH = """
import asyncio, json, time, numpy as np
from qkvlib import AttentionPanel, attention, chapter
from qkvlib.chapter import Example
s, found, random = chapter.sentence, {}, np.random.default_rng(0)
async def grow(n):  # in an event loop, as in a kernel: what can wait until the slider rests waits
    words = [f"w{i}" for i in range(n)]
    example = Example(words, s.X if n == 4 else random.normal(size=(n, 4)), s.W_Q, s.W_K, s.W_V)
    panel = AttentionPanel(example, show=("W_Q", "W_K", "scores", "weights"))
    panel.picture.widget.children[4].value = "screen 1 0"  # as a page says when it opens
    slider = panel._sliders["W_Q"]._sliders[0]
    for sweep in range(2):
        times = []
        for step in range(150):
            start = time.perf_counter(); slider.value = -0.5 + step / 100; times.append(time.perf_counter() - start)
        found.setdefault(n, []).append(1000 * float(np.median(times)))
for n in (4, 16, 64, 256): asyncio.run(grow(n))
X, W = random.normal(size=(256, 64)), random.normal(size=(3, 64, 64)) / 8
times = []
for _ in range(50):
    start = time.perf_counter(); attention(X, *W); times.append(time.perf_counter() - start)
found["maths"] = 1000 * float(np.median(times))
print(json.dumps(found))
"""
IMPORTS = """
import json, time
import numpy, matplotlib.figure, ipywidgets
start = time.perf_counter()
import qkvlib
print(json.dumps(1000 * (time.perf_counter() - start)))
"""
MEMORY = """
import json, psutil
from jupyter_client.manager import start_new_kernel
found = []
for code in ("import numpy, matplotlib.figure, ipywidgets",
             "from qkvlib import AttentionPanel, chapter\\nAttentionPanel(chapter.sentence)"):
    manager, client = start_new_kernel()
    client.execute_interactive(code, output_hook=lambda message: None)
    found.append(psutil.Process(manager.provisioner.pid).memory_info().rss / 1e6)
    client.stop_channels(); manager.shutdown_kernel(now=True)
print(json.dumps(found))
"""


def in_the_kernel():
    """Markdown on how a redraw grows, and what importing and an open panel cost."""
    found = in_python(GROWTH)
    rows = [f"| {n} | {found[n][0]:.1f} | {found[n][1]:.1f} | {found[n][1] / found['4'][1]:.1f} |"
            for n in ("4", "16", "64", "256")]  # fmt: skip
    plain, opened = in_python(MEMORY)
    return "\n".join([
        "| tokens | kernel ms, numbers new | kernel ms, numbers seen before | ÷ 4 tokens |",
        "|---|---|---|---|", *rows, "",
        f"Numbers are written up to 16 tokens. `attention` itself for 256 tokens, d_model, d_k and d_v 64, float64: "
        f"{found['maths']:.1f} ms.", "",
        f"`import qkvlib` after numpy, matplotlib's Figure and ipywidgets: "
        f"{median(in_python(IMPORTS) for _ in range(7)):.0f} ms. A kernel that has imported those three holds "
        f"{plain:.0f} MB; one with the panel of 20.4 open {opened:.0f} MB, {opened - plain:.0f} MB more.",
    ])  # fmt: skip


def report(ways):
    versions = ", ".join(f"{name} {version(name)}" for name in
                         ("jupyterlab", "ipykernel", "ipywidgets", "matplotlib", "numpy", "ipympl"))  # fmt: skip
    stock, course = ([way for way in ways if way.lab.stock is kind] for kind in (True, False))
    return "\n".join([
        "# The live engine, measured", "",
        f"By `make bench`, in one run on one machine with {os.cpu_count()} cores; Python {platform.python_version()}, "
        f"{versions}. Trust the ratios, not the milliseconds.", "",
        f"Each way: {PRESSES * ROUNDS} key presses and {ROUNDS} drags of {DRAG:.0f} s, taking turns. The kernel's time "
        "is that of computing, drawing and encoding one redraw.", "",
        "## On the course's server (`make lab`, TCP_NODELAY)", "", table(course), "",
        "## On a stock server", "", table(stock), "",
        "## In the kernel", "", in_the_kernel(), "",
    ])  # fmt: skip


def main():
    labs = {name: Lab(Path(tempfile.mkdtemp()), stock=name == "stock") for name in ("course", "stock")}
    try:
        text = report(asyncio.run(measure(labs)))
    finally:
        for lab in labs.values():
            lab.stop()
    (ROOT / "tools" / "bench.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
