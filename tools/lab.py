"""Open JupyterLab on the course: python tools/lab.py notebooks/20_1_what_you_will_learn.ipynb [options].

Without make (in a conda environment, on Windows) this is the command to start with.
"""

import os
import sys
from pathlib import Path

from jupyterlab.labapp import main
from jupyterlab_server.workspaces_handler import WorkspacesManager

ROOT = Path(__file__).resolve().parent.parent
CONFIG = str(ROOT / "tools" / "jupyter")


def start(first, options):
    os.chdir(ROOT)  # JupyterLab's root is the folder it is started in
    paths = os.environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep)
    if CONFIG not in paths:
        os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [CONFIG, *paths]))
    # The window layout is kept apart from those of the learner's other projects, and begins with the
    # side bar folded: sliders and heatmaps then stand side by side on a small screen.
    layouts = os.environ.setdefault(
        "JUPYTERLAB_WORKSPACES_DIR", str(Path(sys.prefix, "share", "jupyter", "qkv-workspaces"))
    )
    manager = WorkspacesManager(layouts)
    if not manager.list_workspaces():
        manager.save("default", Path(CONFIG, "workspace.json").read_text())
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # as in most containers, where JupyterLab would refuse to start
        options = ["--allow-root", *options]
    main([f"--LabApp.default_url=/lab/tree/{first}", *options])


if __name__ == "__main__":
    start(sys.argv[1], sys.argv[2:])
