"""A page's plots, as SVG inside the page, in the page's text colour and with photos as JPEG."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import dataclass

from PIL import Image

from topk_platform.reports import plots
from topk_platform.reports.catalogue import PLOTS
from topk_platform.reports.plots import NothingToPlotError, Plotted
from topk_platform.reports.plots.plot_data import INK
from topk_platform.reports.words import command

__all__ = ["Drawn", "drawings"]

_LARGEST = 600_000  # bytes of one plot in a page: all plots and tables together must fit into 3 MB
_ALL = 2_200_000
_ARMS = 2000  # more arms take minutes, and nobody can read their plots
_QUALITY = 75


@dataclass(frozen=True)
class Drawn:
    """A plot of a page.

    Args:
        kind: The kind of plot, as ``topk plot`` names it.
        title: What it shows.
        svg: The plot as SVG; empty if there is none.
        why: The reason why there is none.
        file: The plot as a file of its own; empty if there is none.
    """

    kind: str
    title: str
    svg: str = ""
    why: str = ""
    file: bytes = b""


def drawings(data: Plotted) -> list[Drawn]:
    """Return all kinds of plots; one that cannot be drawn has the reason instead."""
    result: list[Drawn] = []
    if len(data.arms) > _ARMS:
        many = f"the study has {len(data.arms):,} arms, and a page draws at most {_ARMS:,}; to draw some of them:"
        return [
            Drawn(kind, plot.title, why=f"{many} `{_alone(data, kind, '--only', 'GLOB')}`")
            for kind, plot in PLOTS.items()
        ]
    for kind, plot in PLOTS.items():
        try:
            file = plots.written(plots.draw(kind, data), "svg")
        except NothingToPlotError as error:
            result.append(Drawn(kind, plot.title, why=str(error)))
            continue
        svg = _inline(file.decode(), kind, plot.title)
        left = min(_LARGEST, _ALL - sum(len(other.svg) for other in result))
        large = f"it has {len(svg):,} bytes, too many for a page: `{_alone(data, kind)}`"
        fits = len(svg) <= left
        result.append(Drawn(kind, plot.title, svg if fits else "", "" if fits else large, file))
    return result


def _alone(data: Plotted, kind: str, *options: str) -> str:
    """Return the command that draws a plot into a file of its own."""
    return command("plot", data.study, kind, *options, given=data.table.given)


def _inline(svg: str, kind: str, title: str) -> str:
    """Return an SVG for use inside a page: with unique ids, in the page's text colour, and as wide as it allows.

    Args:
        svg: The SVG, as matplotlib writes it.
        kind: The prefix of its ids, which makes them unique in the page.
        title: The text that screen readers read.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{kind}-', svg)
    svg = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{kind}-", svg)
    svg = re.sub(r"\b([1-9]\d*\.\d\d)\d+", r"\1", svg)  # scales keep all digits, because they are below 1
    svg = re.sub(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)", _as_jpeg, svg)
    svg = svg.replace(INK, "currentColor")
    width = re.search(r'width="([\d.]+)pt"', svg)
    size = f"{float(width[1]) * 1.55:.0f}px" if width else "100%"
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}" style="width: {size}"', 1)


def _as_jpeg(png: re.Match[str]) -> str:
    """Return an embedded PNG as JPEG, if that is smaller, as for photos; a PNG with transparent parts stays."""
    image = Image.open(io.BytesIO(base64.b64decode(png[1]))).convert("RGBA")
    if image.getchannel("A").histogram()[255] < image.width * image.height:
        return png[0]
    sink = io.BytesIO()
    image.convert("RGB").save(sink, "JPEG", quality=_QUALITY)
    shorter = f"data:image/jpeg;base64,{base64.b64encode(sink.getvalue()).decode()}"
    return min(shorter, png[0], key=len)
