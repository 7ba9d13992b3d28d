"""The two ways to install the course name the same packages, and nothing in it depends on one machine."""

import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "playwright": "playwright-python"}


def split(requirement):
    """'numpy>=2.1,<3' -> ('numpy', {'>=2.1', '<3'})"""
    name, bounds = re.fullmatch(r"([\w.-]+)\s*(.*)", requirement).groups()
    return name, frozenset(filter(None, bounds.replace(" ", "").split(",")))


def differences(project, environment):
    """What pyproject.toml and environment.yml do not have alike; empty where they agree."""
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    wanted = {(CONDA_NAMES.get(name, name), bounds) for name, bounds in map(split, wanted)}
    wanted |= {("python", frozenset([project["requires-python"]])), ("pip", frozenset())}
    listed = {split(entry) for entry in environment["dependencies"] if isinstance(entry, str)}
    pip = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    return wanted ^ listed or (pip != [["-e ."]] and f"pip: {pip}") or set()


def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text())


def test_conda_gets_the_same_packages_and_bounds():
    assert differences(PROJECT, environment()) == set()
    assert environment()["channels"] == ["conda-forge"]


@pytest.mark.parametrize(
    ("old", "new"),
    [("numpy>=2.1,<3", "numpy>=2.0,<3"), ("numpy>=2.1,<3", "numpy>=2.1"), ("nbval", "nbval2"), ("-e .", "qkvlib"),
     ("  - ruff>=0.12\n", ""), ("python>=3.11", "python>=3.10")],
)  # fmt: skip
def test_a_difference_is_seen(old, new):
    text = (ROOT / "environment.yml").read_text()
    assert old in text
    assert differences(PROJECT, yaml.safe_load(text.replace(old, new)))


def test_every_package_is_pinned_by_version_alone():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+( ; [\w\s.'<>=!()]+)?", line) for line in lines)
    pinned = {line.split("==")[0] for line in lines}
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
    assert {split(requirement)[0] for requirement in wanted} <= pinned


def tracked():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if names.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in names.stdout.decode().split("\0") if name]


def test_no_file_names_a_registrys_host_or_a_machines_path():
    hosts = ["pypi" + ".org", "python" + "hosted", "registry." + "npmjs", "deb." + "debian", "conda." + "anaconda"]
    paths = ["/" + "root/", "/" + "work/", "/" + "home/"]
    for path in tracked():
        text = path.read_bytes().decode(errors="replace")
        assert not [word for word in hosts + paths if word in text], path
    assert not [path for path in tracked() if path.name in ("uv.lock", "pylock.toml")]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans on")
@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("setsid sleep 60 & exit 0", 1)])
def test_a_run_that_leaves_a_process_behind_is_told(script, status):
    watch = [sys.executable, ROOT / "tests" / "nothing_stays.py", "sh", "-c", script]
    ended = subprocess.run(watch, capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert ("still running" in ended.stderr) == ("sleep" in script)
