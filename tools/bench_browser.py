"""Measure the browser edition against JupyterLab, in one run: python tools/bench_browser.py, or make bench.

The same panel stands in JupyterLab, with a kernel of this machine, and in the built site, where Python is in the page.
"""

import asyncio
import functools
import http.server
import os
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
from bench import FLAGS, PRESSES, PROBE, ROOT, ROUNDS, Lab, Way, chromium
from browser_edition import Handler
from playwright.async_api import async_playwright

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


async def measure(lab, url):
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        visits = []
        for _ in range(3):
            context = await browser.new_context(viewport={"width": 1366, "height": 768})
            for _ in range(2):
                page = await context.new_page()
                visits.append(await visit(page, url))
                await page.close()
            await context.close()
        ways = [Way(lab, "panel"), SiteWay(url)]
        for way in ways:
            await way.open(browser)
        for _ in range(ROUNDS):
            for way in random.sample(ways, len(ways)):
                await way.presses()
                await way.drag()
        await browser.close()
    return np.array(visits).reshape(3, 2, 3), ways


def report(visits, ways, size):
    lab, here = ways
    rows = [
        f"| {name} | {median(way.press):.0f} | {np.percentile(way.press, 95):.0f} | {median(way.rates):.0f} "
        f"| {median(way.tails):.0f} |"
        for name, way in (("JupyterLab, `make lab`", lab), ("the browser edition", here))
    ]
    times = [
        f"| {name} | {' | '.join(f'{value:.1f}' for value in np.median(visits[:, at], axis=0))} |"
        for at, name in enumerate(("first visit", "second visit"))
    ]
    return "\n".join([
        "# The browser edition, measured", "",
        f"By `make bench`, in one run on one machine with {os.cpu_count()} cores, the browser's included. The site "
        f"has {size / 1e6:.1f} MB. Trust the ratios, not the milliseconds.", "",
        f"The panel of 20.4, {PRESSES * ROUNDS} key presses each, taking turns. In the browser edition a key takes "
        f"{median(here.press) / median(lab.press):.2f} times as long as in JupyterLab to be seen.", "",
        "| edition | key to pixels: median ms | p95 ms | pictures/s dragging | release to last picture ms |",
        "|---|---|---|---|---|", *rows, "",
        "Seconds from opening 20.4, all cells run as soon as Python is ready; medians of three visitors.", "",
        "| visit | Python is ready | first slider and picture | picture is live, after all cells |",
        "|---|---|---|---|", *times, "",
    ])  # fmt: skip


def main():
    folder = ROOT / "site"
    if not (folder / "index.html").exists():
        sys.exit("no folder site: run make site first")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        lab = Lab(Path(tempfile.mkdtemp()))
        try:
            found = asyncio.run(measure(lab, f"http://127.0.0.1:{server.server_port}/"))
        finally:
            lab.stop()
            server.shutdown()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    text = report(*found, size)
    (ROOT / "tools" / "bench_browser.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
