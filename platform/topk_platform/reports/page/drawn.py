"""A page's plots: SVG in the page itself, in the page's own ink."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from topk_platform.reports import plots
from topk_platform.reports.plots import NothingToPlotError, Plotted, UnsuitedStudyError
from topk_platform.reports.plots.style import INK

__all__ = ["Drawn", "drawings"]

_TITLES: Mapping[str, str] = {
    "accuracy": "Test accuracy: means over seeds; bands and bars are 95 % intervals.",
    "differences": "Paired differences to the baseline with 95 % intervals; full markers: Holm-corrected p below 0.05.",
    "map": "All losses in all regimes. ▲ ▼: Holm-corrected p below 0.05, hollow in a secondary metric; ≈: equivalent; "
    "framed: the best mean of a regime.",
    "topk": "Accuracy over all k, from the kept ranks; bands are 95 % t-intervals over seeds.",
    "winners": "Which loss leads the baseline by the most where; grey: all others are worse; white: none is better.",
    "confusion": "Which classes are among the K guesses for which; look-alikes are framed.",
    "front": "Two metrics against each other; the dotted line joins the means that none beats in both.",
    "ranks": "Mean ranks over regimes; a bar joins losses that do not differ (Nemenyi, 0.05).",
    "profile": "In which share of the regimes a loss's error is at most so many times the lowest (Dolan and Moré).",
    "regions": "Where on the ring class 2 is guessed, by share of seeds: full, the first guess; faint, one of the K.",
    "training": "Validation accuracy of the confirmed runs; bands are 95 % t-intervals over seeds.",
    "tuning": "The best validation accuracy found by so many trials; dashed: the expected best of random draws.",
    "search": "Search trials by parameter: how far below their arm's best.",
    "importance": "Which parameters make a trial one of the best tenth (PED-ANOVA).",
    "levels": "The losses for three classes and K = 2, with their first trial's values; the scores' sum is 2.",
}
_LARGEST = 600_000  # bytes of one plot in a page: all of them and the tables have to fit into 3 MB
_ALL = 2_200_000


@dataclass(frozen=True)
class Drawn:
    """A plot of a page.

    Args:
        kind: As of ``topk plot``.
        title: What it shows.
        svg: The plot, or nothing.
        why: Why there is none.
        file: The plot as a file of its own, or nothing.
    """

    kind: str
    title: str
    svg: str = ""
    why: str = ""
    file: bytes = b""


def drawings(data: Plotted) -> list[Drawn]:
    """Return the kinds of plots that suit the study's design; where there is nothing to draw yet, with the reason."""
    found: list[Drawn] = []
    for kind in plots.KINDS:
        try:
            file = plots.written(plots.draw(kind, data), "svg")
        except UnsuitedStudyError:
            continue
        except NothingToPlotError as error:
            found.append(Drawn(kind, _TITLES[kind], why=str(error)))
            continue
        svg = inline(file.decode(), kind, _TITLES[kind])
        room = min(_LARGEST, _ALL - sum(len(other.svg) for other in found))
        large = f"it has {len(svg):,} bytes, too many for a page: topk plot {data.study.name} {kind}"
        fits = len(svg) <= room
        found.append(Drawn(kind, _TITLES[kind], svg if fits else "", "" if fits else large, file))
    return found


def inline(svg: str, kind: str, title: str) -> str:
    """Return an SVG to stand in a page: names of its own, ink of the page's colour, and as wide as there is room.

    Args:
        svg: As matplotlib writes it.
        kind: Goes before its names, for pages have others.
        title: For those who do not see it.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{kind}-', svg)
    svg = re.sub(r'((?:xlink:)?href="|url\()#', rf"\1#{kind}-", svg)
    svg = re.sub(r"\b([1-9]\d*\.\d\d)\d+", r"\1", svg)  # not scales, which are below 1
    svg = svg.replace(INK, "currentColor")
    width = re.search(r'width="([\d.]+)pt"', svg)
    size = f"{float(width[1]) * 1.55:.0f}px" if width else "100%"
    svg = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}" style="width: {size}"', 1)
