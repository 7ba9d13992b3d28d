"""How the course wants its Jupyter server. Use it elsewhere by putting this folder on JUPYTER_CONFIG_PATH."""

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection


class PromptConnection(ZMQChannelsWebsocketConnection):
    """The kernel's websocket without Nagle's algorithm.

    That algorithm holds a small message back until the browser has acknowledged the one before, and the
    browser acknowledges late: together they stall a dragged slider by some 40 ms a picture.
    """

    async def connect(self):
        self.websocket_handler.set_nodelay(True)
        return await super().connect()


c = get_config()  # noqa: F821, Jupyter provides it
c.ServerApp.kernel_websocket_connection_class = PromptConnection
load_subconfig("jupyter_nbconvert_config.py")  # noqa: F821, for File > Save and Export
