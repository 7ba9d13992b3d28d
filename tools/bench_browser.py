"""Measure the browser edition against JupyterLab, in one run: python tools/bench_browser.py, or make bench.

The same panel stands in JupyterLab, with a kernel of this machine, and in the built site, where Python is in the page.
"""

import asyncio
import os
import random
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
from bench import FLAGS, PRESSES, PROBE, ROOT, ROUNDS, Lab, Way, chromium
from browser_edition import SITE, Handler, file_sizes, server
from playwright.async_api import async_playwright

RATE = 20  # Mbit/s, of the slow network
LESSON = "notebooks/index.html?path=notebooks/20_4_attention_on_a_sequence.ipynb"


class SiteWay(Way):
    """The first panel of 20.4 in the site."""

    def __init__(self, url):
        super().__init__(None, "site")
        self.url = url

    async def open(self, browser):
        self.page = await browser.new_page(viewport={"width": 1366, "height": 768})
        await visit(self.page, self.url)
        await self.page.locator(".qkv-panel:has(canvas)").first.evaluate("panel => panel.scrollIntoView()")
        self.handle = self.page.locator(".noUi-handle").first
        await self.page.wait_for_timeout(3000)
        await self.page.evaluate(PROBE)
        self.cdp = await self.page.context.new_cdp_session(self.page)


async def visit(page, url):
    """Open 20.4 and run all its cells as soon as Python is ready; seconds until then, a slider, and a live picture."""
    began, times = time.monotonic(), []
    await page.goto(url + LESSON)
    await page.get_by_text("Python is ready").wait_for(timeout=90_000)
    times.append(time.monotonic() - began)
    await page.get_by_role("button", name="Run all cells", exact=True).click()
    for sign in (".qkv-panel .noUi-handle", ".qkv-panel canvas"):
        await page.locator(sign).first.wait_for(timeout=90_000)
        times.append(time.monotonic() - began)
    return times


class Throttled(Handler):
    """Serves as a slow network does: all that is asked for shares what it can carry."""

    line = threading.Lock()

    def copyfile(self, source, output):
        while chunk := source.read(1 << 15):
            with self.line:
                time.sleep(len(chunk) * 8 / (RATE * 1e6))
            output.write(chunk)


@contextmanager
def serving(handler):
    """The address of the site while it is served."""
    with server(SITE, 0, handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/"
        finally:
            running.shutdown()


async def visits(playwright, url):
    """Times of a visitor's first visit, and of the second one, in a browser that was closed meanwhile."""
    times = []
    with tempfile.TemporaryDirectory() as profile:
        for _ in range(2):
            context = await playwright.chromium.launch_persistent_context(
                profile, executable_path=chromium(), args=FLAGS, viewport={"width": 1366, "height": 768}
            )
            times.append(await visit(await context.new_page(), url))
            await context.close()
    return times


async def measure(lab, url, slow_url):
    async with async_playwright() as playwright:
        visitors = [[await visits(playwright, url), await visits(playwright, slow_url)] for _ in range(3)]
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        ways = [Way(lab, "panel"), SiteWay(url)]
        for way in ways:
            await way.open(browser)
        for _ in range(ROUNDS):
            for way in random.sample(ways, len(ways)):
                await way.presses()
                await way.drag()
        await browser.close()
    return np.median(visitors, axis=0).reshape(4, 3), ways


def report(visits, ways, size):
    lab, here = ways
    rows = [
        f"| {name} | {median(way.press):.0f} | {np.percentile(way.press, 95):.0f} | {median(way.rates):.0f} "
        f"| {median(way.tails):.0f} |"
        for name, way in (("JupyterLab, `make lab`", lab), ("the browser edition", here))
    ]
    names = [f"{which} visit{over}" for over in ("", f", {RATE} Mbit/s") for which in ("first", "second")]
    times = [
        f"| {name} | {' | '.join(f'{value:.1f}' for value in seconds)} |"
        for name, seconds in zip(names, visits, strict=True)
    ]
    return "\n".join([
        "# The browser edition, measured", "",
        f"By `make bench`, in one run on one machine with {os.cpu_count()} cores, the browser's included. The site "
        f"has {size / 1e6:.1f} MB. Trust the ratios, not the milliseconds.", "",
        f"The panel of 20.4, {PRESSES * ROUNDS} key presses each, taking turns. In the browser edition a key takes "
        f"{median(here.press) / median(lab.press):.2f} times as long as in JupyterLab to be seen.", "",
        "| edition | key to pixels: median ms | p95 ms | pictures/s dragging | release to last picture ms |",
        "|---|---|---|---|---|", *rows, "",
        "Seconds from opening 20.4, all cells run as soon as Python is ready; medians of three visitors, who close the "
        f"browser between their two visits. The site is on the same machine, or beyond a network of {RATE} Mbit/s.", "",
        "| visit | Python is ready | first slider and picture | picture is live, after all cells |",
        "|---|---|---|---|", *times, "",
    ])  # fmt: skip


def main():
    with serving(Handler) as url, serving(Throttled) as slow_url:
        lab = Lab(Path(tempfile.mkdtemp()))
        try:
            found = asyncio.run(measure(lab, url, slow_url))
        finally:
            lab.stop()
    text = report(*found, sum(file_sizes(SITE)))
    (ROOT / "tools" / "bench_browser.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
