"""The browser edition: built, served under /course/ where there is no other network, and used in a real Chromium."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest
from conftest import FLAGS, ROOT, chromium, free_port, load_tool
from playwright.sync_api import sync_playwright

site = load_tool("browser_edition")
pytestmark = pytest.mark.browser
SHARED = ROOT.parent / "shared" / "pyodide"
NOTEBOOKS = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("[ns]o*/*.ipynb"))]
OTHER = "course.test"  # another name for this machine, so that its plain HTTP is none that a browser trusts
EXPOSED = {"exposeAppInBrowser": True}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two builds of the site, made at once."""
    for command in ("npm", "node"):
        if not shutil.which(command) and not os.environ.get("QKV_REQUIRE_BROWSER"):
            pytest.skip(f"no {command} found: the browser edition is built with Node.js")
    outs = [tmp_path_factory.mktemp("www") / "course" for _ in range(2)]
    environment = os.environ | ({"WHEELS": str(SHARED)} if SHARED.exists() else {})
    site.fetch(environment.get("WHEELS"))  # once, or both would

    def build(out):
        command = [sys.executable, ROOT / "tools" / "browser_edition.py", out]
        return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)

    with ThreadPoolExecutor() as pool:
        for done in pool.map(build, outs):
            assert done.returncode == 0, done.stderr[-2000:]
    return outs


def files(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def test_two_builds_are_the_same_and_small(folders):
    one, two = map(files, folders)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name].read_bytes() != two[name].read_bytes()] == []
    assert sum(path.stat().st_size for path in one.values()) < 60e6


def test_what_a_kernel_fetches_is_what_the_list_says(folders):
    (listed,) = folders[0].glob("static/python-*/pyodide-lock.json")
    packages = json.loads(listed.read_text())["packages"]
    assert {"numpy", "matplotlib", "ipywidgets", "qkvlib"} <= packages.keys()
    for package in packages.values():
        assert site.sha256(listed.parent / package["file_name"]) == package["sha256"]
        assert {name.replace("_", "-") for name in package["depends"]} <= packages.keys()


@pytest.mark.parametrize("harm", ["missing", "changed"])
@pytest.mark.parametrize("kind", ["compiled", "pure", "npm"])
def test_a_missing_or_changed_file_ends_the_build_with_its_name(folders, tmp_path, monkeypatch, capsys, kind, harm):
    name = sorted(site.LOCK[kind])[-1]
    fetched, wheels = tmp_path / "fetched", tmp_path / "wheels"
    shutil.copytree(site.FETCHED, fetched)
    shutil.copytree(SHARED if SHARED.exists() else site.FETCHED, wheels)
    path = (wheels if kind == "compiled" else fetched) / name
    path.chmod(0o644)
    if harm == "changed":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        path.unlink()
    monkeypatch.setattr(site, "FETCHED", fetched)
    monkeypatch.setattr(site, "run", lambda *command, **options: None)  # a registry that has it not
    with pytest.raises(SystemExit, match=re.escape(name)):
        site.fetch(str(wheels))


# In the browser


class Offline:
    """Chromium with the site, in a network of their own where the system allows one."""

    def __init__(self, folder, wrapper):
        self.port, self.left = free_port(), []
        alone = ["unshare", "--map-root-user", "--net"] if sys.platform == "linux" else []
        command = [*alone, sys.executable, ROOT / "tests" / "offline.py", folder, self.port, chromium()]
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
        wrapper.chmod(0o755)
        self._playwright = sync_playwright().start()
        flags = [*FLAGS, f"--host-resolver-rules=MAP {OTHER} 127.0.0.1"]
        self.browser = self._playwright.chromium.launch(executable_path=wrapper, args=flags)

    def context(self):
        """A visitor: nothing in this browser is kept from another one."""
        context = self.browser.new_context(viewport={"width": 1366, "height": 768})
        context.on("request", lambda request: self._note(request.url))
        return context

    def _note(self, url):
        ours = ("127.0.0.1", OTHER)
        if not url.startswith(("data:", "blob:", *(f"http://{host}:{self.port}/" for host in ours))):
            self.left.append(url)

    def stop(self):
        self.browser.close()
        self._playwright.stop()


@pytest.fixture(scope="module")
def offline(folders, tmp_path_factory):
    settings = folders[0] / "jupyter-lite.json"  # so that a test can read a notebook's outputs
    config = json.loads(settings.read_text())
    config["jupyter-config-data"] |= EXPOSED
    settings.write_text(json.dumps(config))
    running = Offline(folders[0].parent, tmp_path_factory.mktemp("chromium") / "chromium")
    yield running
    running.stop()
    assert running.left == []


@pytest.fixture
def visitor(offline):
    context = offline.context()
    yield context
    context.close()


class Course:
    """A notebook of the site, open in a page."""

    def __init__(self, offline, context, name, host="127.0.0.1", fragment=""):
        self.page, self.errors = context.new_page(), []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"http://{host}:{offline.port}/course/notebooks/index.html?path={name}{fragment}")

    def ready(self):
        self.page.get_by_text("Python is ready").wait_for(timeout=90_000)
        return self

    def run_all(self):
        self.ready().page.get_by_role("button", name="Run all cells", exact=True).click()
        return self

    def run(self, *sources):
        """What each of some cells prints and shows, as text, when the notebook's kernel runs it."""
        return self.page.evaluate(RUN, sources)


RUN = """async sources => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel, texts = [];
  for (const [i, code] of sources.entries()) {
    const run = kernel.requestExecute({code, stop_on_error: false}, true, {cellId: 'cell-' + i});
    texts.push('');
    run.onIOPub = ({content: {text, data, ename, evalue}}) => {
      texts[i] += text ?? data?.['text/plain'] ?? (ename ? `${ename}: ${evalue}` : '');
    };
    await run.done;
  }
  return texts;
}"""


def printed(cell):
    """The same of a cell as it is committed."""
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(map("".join, texts))


def code_cells(name):
    return [cell for cell in nbformat.read(ROOT / name, 4).cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def kernels(offline):
    """Two visitors, each with a kernel that is ready."""
    contexts = [offline.context() for _ in range(2)]
    yield [page.ready() for page in [Course(offline, context, NOTEBOOKS[0]) for context in contexts]]
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_prints_in_the_browser_what_is_committed(kernels, name):
    cells = code_cells(name)
    fresh = f"%reset -f\nimport os\nos.chdir('/drive/{Path(name).parent}')"
    _, *texts = kernels[0].run(fresh, *(cell.source for cell in cells))
    assert texts == [printed(cell) for cell in cells]
    assert kernels[0].errors == []
