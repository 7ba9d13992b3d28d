"""What the tests share: where the course is, a real Chromium, and a real JupyterLab on a copy of the notebooks."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pictures
import pytest

# Programs, to be run elsewhere than in a test.
collect_ignore = ["nothing_stays.py", "offline.py", "other_versions.py", "unit_in_browser.py"]
ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge",
            "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
            "/Applications/Chromium.app/Contents/MacOS/Chromium",
            r"C:\Program Files\Google\Chrome\Application\chrome.exe")  # fmt: skip


def chromium():
    """The path of a Chromium, or a skip that says how to get one (a failure where browser tests are required)."""
    for name in CHROMIUM:
        if found := shutil.which(name):
            return found
    reason = (
        "no Chromium found: install it (Debian, Ubuntu: apt-get install chromium; "
        "macOS: brew install --cask chromium) and run make test again"
    )
    if os.environ.get("QKV_REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")  # not the session: Playwright's event loop would go on running under other tests
def browser():
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Compare a notebook's pictures, once nbval has run the cell and compared the rest."""
    result = yield
    if type(item).__name__ == "IPyNbCell":  # by name: nbval is not there on Pyodide's Python
        said = pictures.changed(item.cell.get("outputs", ()), item.test_outputs or ())
        assert not said, f"{item.name}: {said}"
    return result


def load_tool(name):
    """The module tools/name.py, which is no package's."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_jupyter(*arguments):
    """A command of Jupyter's, with the course's settings, as make runs it."""
    environment = os.environ | {"JUPYTER_CONFIG_PATH": str(ROOT / "tools" / "jupyter")}
    subprocess.run([sys.executable, "-m", *map(str, arguments)], env=environment, check=True, capture_output=True)


class Lab:
    """A running JupyterLab on a copy of notebooks and solutions: as `make lab` starts it, or a stock one."""

    def __init__(self, folder, stock=False):
        self.folder, self.stock = folder, stock
        for name in ("notebooks", "solutions"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("progress*"))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        first = "notebooks/20_1_what_you_will_learn.ipynb"
        starter = ["-m", "jupyterlab", "--allow-root"] if stock else [ROOT / "tools" / "lab.py", first]
        options = ["--no-browser", f"--ServerApp.root_dir={folder}", f"--port={port}", "--IdentityProvider.token=t"]
        self.log = folder / "lab.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, *starter, *options], cwd=folder,
                                            stdout=log, stderr=log, env=self._environment())  # fmt: skip
        self._wait()

    def _environment(self):
        own = ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR")
        without = {name: value for name, value in os.environ.items() if name != "JUPYTER_CONFIG_PATH"}
        return without | {name: str(self.folder / name.lower()) for name in own}

    def _wait(self):
        for _ in range(300):
            try:
                return urllib.request.urlopen(f"{self.url}/api?token=t", timeout=5).close()
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.2)
        raise RuntimeError(f"JupyterLab did not start: {self.log.read_text()[-2000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    chromium()
    running = Lab(tmp_path_factory.mktemp("lab é x"))
    yield running
    running.stop()
