"""How the course wants its notebooks exported: with the pictures that were on screen when they were saved.

A saved panel is a widget, which an exported page would fetch a widget manager for from the internet.
Its last picture and caption are in the saved state, and need nothing.
"""

from nbconvert.preprocessors import Preprocessor

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"


class SavedPictures(Preprocessor):
    def preprocess_cell(self, cell, resources, index):
        for output in cell.get("outputs", ()):
            view = output.get("data", {}).pop(VIEW, None)
            if view:
                self.show_picture(output, list(self.parts(view["model_id"])))
        return cell, resources

    def preprocess(self, notebook, resources):
        self.models = notebook.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
        return super().preprocess(notebook, resources)

    def show_picture(self, output, parts):
        """Put the last picture and caption of a saved panel in place of those it was first shown with."""
        pictures = [model["buffers"][0]["data"] for model in parts if model["model_name"] == "ImageModel"]
        captions = [model["state"]["value"] for model in parts if 'id="qkv-' in str(model["state"].get("value"))]
        if pictures and captions:
            caption = captions[0].split(">", 1)[1].split("</p>")[0]
            image = f'<img alt="{caption}" src="data:image/png;base64,{pictures[0]}">'
            output.data["text/html"] = f"<figure>{image}<figcaption>{caption}</figcaption></figure>"

    def parts(self, model_id):
        """The saved model of a widget, and those of all that it holds."""
        model = self.models.get(model_id)
        if model:
            yield model
            for child in model["state"].get("children", ()):
                yield from self.parts(child.removeprefix("IPY_MODEL_"))


c = get_config()  # noqa: F821, Jupyter provides it
c.HTMLExporter.preprocessors = [SavedPictures]
