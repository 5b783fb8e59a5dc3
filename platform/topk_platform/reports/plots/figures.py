"""Figures that show themselves in a notebook."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

from topk_platform.reports.plots.style import styled

__all__ = ["ShownFigure"]

_DPI = 160
_CSS = 96  # pixels of a browser in an inch


class ShownFigure(Figure):
    """A figure that a notebook can show by itself: it is made without pyplot, which would otherwise do this."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        sink = io.BytesIO()
        with styled():
            self.savefig(sink, format="png", dpi=_DPI, facecolor="white")
        width, height = self.get_size_inches()
        return sink.getvalue(), {"width": round(_CSS * width), "height": round(_CSS * height)}
