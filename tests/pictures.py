"""Compare pictures as a person would: another version of matplotlib places letters a little differently."""

import base64
import io

import numpy as np
from PIL import Image

SQUARE, MOST = 16, 32  # pixels a side, and how much the mean colours of two squares may differ, of 255


def difference(one, other):
    """What is different in two pictures (PNG in base64), in words, or ""."""
    one, other = (_pixels(picture) for picture in (one, other))
    if one.shape != other.shape:
        return f"a picture of {one.shape[1]} x {one.shape[0]} pixels became one of {other.shape[1]} x {other.shape[0]}"
    away = np.abs(_squares(one) - _squares(other)).max(axis=2)
    row, column = (int(SQUARE * at) for at in np.unravel_index(away.argmax(), away.shape))
    return f"the colours round pixel {column}, {row} differ by {away.max():.0f} of 255" if away.max() > MOST else ""


def _pixels(picture):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"), float)


def _squares(pixels):
    """The mean colours of squares; what is left over at the right and below goes into narrower ones."""
    for axis in (0, 1):
        starts = np.arange(0, pixels.shape[axis], SQUARE)
        sizes = np.diff(starts, append=pixels.shape[axis]).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        pixels = np.add.reduceat(pixels, starts, axis=axis) / sizes
    return pixels


def changed(before, now):
    """What is different in the pictures of a cell's outputs, or ""."""
    pairs = zip(_pictures(before), _pictures(now), strict=True)
    return next(filter(None, (difference(*pair) for pair in pairs)), "")


def _pictures(outputs):
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
