"""Run qkvlib's unit tests in a Pyodide kernel: a cell's code, with the names of the files to run in TESTS."""

import asyncio
import asyncio.events
import json
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import qkvlib


class Anything:
    """What hypothesis's strategies are, where nothing runs with them."""

    def __getattr__(self, name):
        return self

    def __call__(self, *arguments, **options):
        return self


def stand_in(name, **content):
    sys.modules[name] = ModuleType(name)
    sys.modules[name].__dict__.update(content)


def read(path, version):
    """What the tests use of nbformat, whose checks come compiled, too."""
    return json.loads(path.read_text("utf-8"), object_hook=lambda entry: Cell(**entry))


class Cell(SimpleNamespace):
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return "".join(value) if name == "source" else value

    def get(self, name, default=None):
        return getattr(self, name, default)


stand_in("hypothesis", given=lambda *strategies: pytest.mark.skip("hypothesis comes compiled"),
         settings=lambda **options: lambda test: test, strategies=Anything())  # fmt: skip
stand_in("hypothesis.extra")
stand_in("hypothesis.extra.numpy", arrays=Anything())
stand_in("nbformat", read=read)
loop = asyncio.events._get_running_loop()


class Plain:
    """A plug-in: tests are a script's code, not a cell's, and what a browser lacks is skipped by its name."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        asyncio.events._set_running_loop(None)


def no_loop(coroutine):
    coroutine.close()
    pytest.skip("a browser's event loop cannot be run within itself")


asyncio.run = no_loop
threading.Thread.start = lambda thread: pytest.skip("a browser has no threads")
try:
    options = ["-q", "--tb=short", "--color=no", "-o", "addopts=", "-p", "no:cacheprovider", "--doctest-modules"]
    code = pytest.main([*options, str(Path(qkvlib.__file__).parent), *TESTS], [Plain()])  # noqa: F821
finally:
    asyncio.events._set_running_loop(loop)
print("exit code:", int(code))
