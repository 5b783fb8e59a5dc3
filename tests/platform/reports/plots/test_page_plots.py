"""Photos inside a page are JPEG, and drawings stay as they are."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from topk_platform.reports.plots import written
from topk_platform.reports.plots.drawing import figure
from topk_platform.reports.plots.page_plots import _inline


def photo() -> np.ndarray:
    """A smooth picture with noise, as photos are."""
    draw = np.random.default_rng(0)
    x, y = np.mgrid[0:1:64j, 0:1:48j]
    return np.clip(np.stack([x, y, x * y], 2) + draw.normal(0, 0.02, (64, 48, 1)), 0, 1)


@pytest.mark.parametrize(("pixels", "kind"), [(photo(), "jpeg"), (np.zeros((64, 48, 3)), "png")])
def test_the_smaller_of_jpeg_and_png_shows_the_same_picture(pixels: np.ndarray, kind: str) -> None:
    made = figure(2, 2)
    made.subplots().imshow(pixels, interpolation="none")
    svg = written(made, "svg").decode()
    page = _inline(svg, "guesses", "Photos")
    assert re.findall(r"data:image/(\w+)", page) == [kind] and len(page) < len(svg)
    shown, drawn = (
        np.asarray(
            Image.open(io.BytesIO(base64.b64decode(re.findall(r"base64,([^\"]+)", text)[0]))).convert("RGB")
        )
        for text in (page, svg)
    )
    assert shown.shape == drawn.shape and np.abs(shown.astype(int) - drawn).mean() < 6
