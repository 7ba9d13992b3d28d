"""How the course wants its notebooks exported: with the pictures that were on screen when they were saved.

A saved panel is a widget, which an exported page would fetch a widget manager for from the internet.
Its last picture and caption are in the saved state, and need nothing.
"""

from html import escape

from nbconvert.preprocessors import Preprocessor

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"


class SavedPictures(Preprocessor):
    def preprocess(self, notebook, resources):
        self.models = notebook.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
        for cell in notebook.cells:
            if any(self.show_picture(output) for output in cell.get("outputs", ())):
                cell.outputs = [output for output in cell.outputs if "qkv-saved" not in str(output.get("data"))]
        return notebook, resources

    def show_picture(self, output):
        """Put a saved panel's picture in place of its view; whether there was one."""
        view = output.get("data", {}).pop(VIEW, None)
        parts = list(self.parts(view["model_id"])) if view else []
        pictures = [model["buffers"][0]["data"] for model in parts if model["model_name"] == "ImageModel"]
        captions = [model["state"]["value"] for model in parts if 'id="qkv-' in model["state"].get("value", "")]
        if not pictures:
            return False
        caption = captions[0].split(">", 1)[1].removesuffix("</p>")
        source = f"data:image/png;base64,{pictures[0]}"
        output.data["text/html"] = (
            f'<figure><img src="{source}" alt="{escape(caption)}"><figcaption>{caption}</figcaption></figure>'
        )
        return True

    def parts(self, model_id):
        """The saved model of a widget, and those of all that it holds."""
        model = self.models.get(model_id)
        if model:
            yield model
            for child in model["state"].get("children", ()):
                yield from self.parts(child.removeprefix("IPY_MODEL_"))


c = get_config()  # noqa: F821, Jupyter provides it
c.HTMLExporter.preprocessors = [SavedPictures]
