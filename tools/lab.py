"""Open JupyterLab on the course: python tools/lab.py notebooks/20_1_what_you_will_learn.ipynb [options].

Without make (in a conda environment, on Windows) this is the command to start with.
"""

import os
import sys
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir
from jupyterlab.labapp import main
from jupyterlab_server.workspaces_handler import WorkspacesManager

ROOT = Path(__file__).resolve().parent.parent
CONFIG = str(ROOT / "tools" / "jupyter")


def layouts():
    """The folder for the window's layout, which begins with the side bar folded.

    It is the learner's own, also where many share one installation, and kept apart from other projects'.
    """
    folder = os.environ.get("JUPYTERLAB_WORKSPACES_DIR") or str(Path(jupyter_data_dir(), "qkv-workspaces"))
    manager = WorkspacesManager(folder)
    if not manager.list_workspaces():
        manager.save("default", Path(CONFIG, "workspace.json").read_text("utf-8"))
    return folder


def start(first, options):
    os.chdir(ROOT)  # JupyterLab's root is the folder it is started in
    paths = os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    if CONFIG not in paths:
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [CONFIG, *paths]))
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in most containers, where JupyterLab would refuse to start
        options = ["--allow-root", *options]
    # An option, not a variable: JupyterLab has read those when it is imported.
    main([f"--LabApp.default_url=/lab/tree/{first}", f"--LabApp.workspaces_dir={layouts()}", *options])


if __name__ == "__main__":
    start(sys.argv[1], sys.argv[2:])
