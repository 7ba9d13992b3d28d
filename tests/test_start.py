"""What a person types, `make lab` and `make lecture`, in an empty home without variables of Jupyter's; how it ends."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from conftest import ROOT, free_port

pytestmark = pytest.mark.browser


@pytest.fixture
def home(tmp_path):
    if not shutil.which("make") or Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("these tests run where make test runs them: with make, and Python in .venv")
    return {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")} | {
        "HOME": str(tmp_path / "home")
    }


@contextlib.contextmanager
def typed(command, home, log):
    """Type a command, as in a terminal of its own; gives the process, of which `started` tells what it has started."""

    def heard():  # also where the tests themselves run under nohup, or behind others
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=home, stdout=out, stderr=out,
                                   start_new_session=True, preexec_fn=heard)  # fmt: skip
    try:
        yield process
    finally:
        for each in [*started(process), process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                each.kill()
        process.wait(10)


def started(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def eventually(found, seconds=60):
    """What `found` gives as soon as it gives something."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return result


def test_make_lab_opens_the_first_notebook_with_the_side_bar_folded(home, browser, tmp_path):
    log = tmp_path / "log"
    with typed(["make", "lab", "LAB_OPTIONS=--no-browser"], home, log) as lab:
        url = eventually(lambda: re.search(r"http://127\.0\.0\.1\S+", log.read_text()))[0]
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(url)
        page.get_by_role("heading", name="20.1 What you will learn").wait_for(timeout=60_000)
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        assert not page.locator(".jp-FileBrowser").is_visible()
        page.wait_for_timeout(1000)
        page.locator(".lm-MenuBar-item:has-text('Run')").click()
        page.locator("[data-command='runmenu:run-all']").click()
        panel = page.locator(".qkv-panel:has(canvas)").first
        panel.wait_for(timeout=60_000)
        panel.evaluate("panel => panel.scrollIntoView()")
        controls, picture = (panel.locator(part).bounding_box() for part in (".qkv-controls", "img.qkv-picture"))
        assert controls["x"] + controls["width"] <= picture["x"]  # side by side
        page.close()
        running = started(lab)
        assert len(running) >= 2  # server and kernel
        os.killpg(lab.pid, signal.SIGTERM)
        eventually(lambda: not any(map(psutil.Process.is_running, running)))
    assert not list(Path(home["HOME"]).rglob("lab/workspaces"))  # where those of other projects are


def end_make(lecture):
    os.kill(lecture.pid, signal.SIGTERM)


def kill_make(lecture):
    os.kill(lecture.pid, signal.SIGKILL)


def kill_the_program(lecture):
    next(each for each in started(lecture) if "tools/lecture.py" in each.cmdline()).kill()


def press_ctrl_c(lecture):
    os.killpg(lecture.pid, signal.SIGINT)


def close_the_terminal(lecture):
    os.killpg(lecture.pid, signal.SIGHUP)


@pytest.mark.parametrize("end", [end_make, kill_make, kill_the_program, press_ctrl_c, close_the_terminal])
def test_however_make_lecture_ends_nothing_of_it_stays(home, tmp_path, end):
    port = free_port()
    command = ["make", "lecture", f"LECTURE_OPTIONS=--no-browser --port={port}"]
    with typed(command, home, tmp_path / "log") as lecture:

        def page():
            with contextlib.suppress(OSError):
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60)

        with eventually(page) as answer:
            answer.read(1)  # then there is a kernel, which works on the rest
            running = eventually(lambda: (found := started(lecture)) and any(map(_is_kernel, found)) and found)
            end(lecture)
            _, alive = psutil.wait_procs([*running, psutil.Process(lecture.pid)], timeout=60)
        for each in alive:
            each.kill()
        assert alive == []


def _is_kernel(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return "ipykernel_launcher" in process.cmdline()
