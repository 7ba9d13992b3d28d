"""How the course wants its Jupyter server. Use it elsewhere by putting this folder on JUPYTER_CONFIG_PATH."""

import base64
import html
import io
import json
from pathlib import Path

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from PIL import Image

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"


class PromptConnection(ZMQChannelsWebsocketConnection):
    """The kernel's websocket without Nagle's algorithm.

    That algorithm holds a small message back until the browser has acknowledged the one before, and the
    browser acknowledges late: together they stall a dragged slider by some 40 ms a picture.
    """

    async def connect(self):
        self.websocket_handler.set_nodelay(True)
        return await super().connect()


def keep_pictures(model, path, contents_manager, **kwargs):
    """Save of each panel the picture and the caption that are on screen, and nothing that needs a kernel.

    A saved widget is "model not found" as soon as its state is not saved with it, which JupyterLab forgets at the
    second opening; and its state is larger than the notebook.
    """
    if model["type"] != "notebook" or not model.get("content"):
        return
    metadata = model["content"]["metadata"]
    models = metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
    if language := metadata.get("language_info"):  # JupyterLab writes more of it into whatever it opens
        metadata["language_info"] = {"name": language["name"]}
    before = {}
    for cell in model["content"]["cells"]:
        for output in cell.get("outputs", ()):
            view = output.get("data", {}).pop(VIEW, None)
            if view and view["model_id"] not in models:  # the kernel was restarted: what was saved last still holds
                before = before or pictures(Path(contents_manager.root_dir, path.strip("/")))
                output["data"].update(before.get((cell.get("id"), "".join(cell["source"])), {}))
            elif view:
                output["data"].update(still(models, view["model_id"]))


def pictures(path):
    """The pictures of a notebook's file, by the id and the source of their cell."""
    cells = json.loads(path.read_text("utf-8"))["cells"] if path.exists() else ()
    return {
        (cell.get("id"), "".join(cell["source"])): output["data"]
        for cell in cells
        for output in cell.get("outputs", ())
        if "image/png" in output.get("data", {})
    }


def still(models, model_id):
    """Picture and caption of a panel, as qkvlib.plots.saved has them; {} of what has no picture.

    Not made by qkvlib, which would bring matplotlib into the server's memory.
    """
    held = list(parts(models, model_id))
    images = [part for part in held if part["model_name"] == "ImageModel"]
    captions = [part["state"]["value"] for part in held if 'id="qkv-' in str(part["state"].get("value"))]
    if not (images and captions):
        return {}
    layout = models[images[0]["state"]["layout"].removeprefix("IPY_MODEL_")]["state"]
    encoded = small(images[0]["buffers"][0]["data"], int(layout["width"].removesuffix("px")))
    said = captions[0].split(">", 1)[1].split("</p>")[0]
    image = f'<img alt="{said}" src="data:image/png;base64,{encoded}">'
    figure = f"<figure>{image}<figcaption>{said}</figcaption></figure>"
    return {"text/html": figure, "image/png": encoded, "text/plain": html.unescape(said)}


def parts(models, model_id):
    """The saved model of a widget, and those of all that it holds."""
    model = models.get(model_id)
    if model:
        yield model
        for child in model["state"].get("children", ()):
            yield from parts(models, child.removeprefix("IPY_MODEL_"))


def small(picture, width):
    """A picture (PNG in base64) as large as it is on a plain screen, in as few bytes as PNG needs."""
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    if image.width != width:  # of a denser screen
        image = image.resize((width, round(image.height * width / image.width)), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "png", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


c = get_config()  # noqa: F821, Jupyter provides it
c.ServerApp.kernel_websocket_connection_class = PromptConnection
c.ContentsManager.pre_save_hook = keep_pictures
