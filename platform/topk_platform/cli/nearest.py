"""The command that says with which loss to begin: what was seen on data most like yours, the rule, what to search."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from topk_platform.cli import options
from topk_platform.cli.consoles import say
from topk_platform.cli.findings_by_name import requested_findings
from topk_platform.cli.studies import as_reference, requested_study
from topk_platform.errors import UserError
from topk_platform.results.cells import Mark
from topk_platform.results.findings import Findings
from topk_platform.results.findings_schema import Situation
from topk_platform.results.intervals import Estimate
from topk_platform.results.table import row_and_column
from topk_platform.specs import digits_of, scale_of

__all__ = ["Measured", "SeenRegime", "nearest", "rule", "seen"]

_SITUATIONS = 3
_LOSSES = 3
_NOISE = 8.0  # how far a noise of 0 is from one of 1; a tenfold number is 2.3 away
_MARKS: dict[Mark, str] = {"better": " ▲", "worse": " ▼", "": ""}

Rule = tuple[str, tuple[str, ...]]
"""What to do in a sentence, and the losses to search."""

_TAIL: Rule = (
    "A long tail, and all classes count alike: balanced softmax; if frequent classes count more, cross-entropy.",
    ("cross_entropy", "balanced_softmax"),
)
_WRONG: Rule = (
    "Most labels wrong, but look-alikes, and several guesses shown: try the smooth SVM or the soft top-K loss beside "
    "cross-entropy; the first guess may be worse.",
    ("cross_entropy", "smooth_topk_svm", "soft_topk_loss"),
)
_USUAL: Rule = (
    "Keep cross-entropy and tune it: no loss for several guesses is shown to be ahead of it.",
    ("cross_entropy",),
)
_LONG, _MOST = 5.0, 0.6  # the imbalance and the noise from which a rule holds


def _reference(name: str | None) -> str | None:
    return None if name is None else as_reference(name)


def nearest(
    study: Annotated[
        str | None,
        typer.Argument(
            help="Your own study with results, or a file of its findings.",
            callback=_reference,
        ),
    ] = None,
    classes: Annotated[int | None, typer.Option("--classes", help="How many classes there are.")] = None,
    images: Annotated[
        int | None, typer.Option("--images", help="Training images of each class, on average.")
    ] = None,
    noise: Annotated[
        float, typer.Option("--noise", help="The share of wrong training labels, 0 to 1.")
    ] = 0.0,
    imbalance: Annotated[
        float, typer.Option("--imbalance", help="The largest class over the smallest.")
    ] = 1.0,
    k: Annotated[int, typer.Option("--k", help="How many guesses are shown.")] = 5,
    store: options.Store = "runs",
) -> None:
    """Say with which loss to begin: what was seen on data most like yours, the rule, and what to search.

    A study of your own comes first, with the marks of its own table; its data are then compared with those of the
    findings that are shipped.

    Example: topk nearest --classes 100 --images 450 --noise 0.8
    """
    asked: Iterable[Situation]
    if study is not None:
        own = requested_findings(study, store) or _of_store(study, store)
        for line in _own(own):
            say(line)
        asked = dict.fromkeys(own.situations.values())
    elif classes is None or images is None:
        raise UserError("name a study with results, or give --classes and --images")
    else:
        asked = [Situation(classes, classes * images, imbalance, noise, k)]
    shipped: tuple[Findings, ...] = importlib.import_module("topk_studies").evidence()
    others = [result for result in shipped if study is None or result.study.name != own.study.name]
    for situation in asked:
        say(f"Your data: {_described(situation)}.")
        regimes = seen(situation, others)
        for regime in regimes:
            say(f"  Seen nearest: {regime}")
        sentence, losses = rule(situation)
        say(f"  {sentence}")
        same = [measured for r in regimes if r.situation == regimes[0].situation for measured in r.measured]
        named = dict.fromkeys((*losses, *(measured.loss for measured in same if measured.mark == "better")))
        say(f"  To search five times each, with five trials for each dimension: {', '.join(named)}.")


def _of_store(study: str, store: str) -> Findings:
    requested = requested_study(study, False)
    from topk_platform.reports.findings_export import findings  # noqa: PLC0415 - torch

    return findings(requested, store=store)


def _own(own: Findings) -> Iterator[str]:
    """Yield what a study's own table marks in the metric of its searches, by its own correction."""
    regimes = list(_regimes(own))
    for regime in regimes:
        for measured in regime.measured:
            if measured.mark:
                ours = f"{measured.metric}, {measured} beside {own.study.baseline}"
                yield f"Your study, {_described(regime.situation)}: {ours}."
    if not any(measured.mark for regime in regimes for measured in regime.measured):
        yield f"Your study {own.study.name} marks no difference."


@dataclass(frozen=True)
class Measured:
    """A loss's difference to the baseline, with its mark in the table of its study."""

    loss: str
    metric: str
    difference: Estimate
    mark: Mark

    def __str__(self) -> str:
        scale, digits = scale_of(self.metric), digits_of(self.metric)
        mean, half = scale * self.difference.mean, scale * self.difference.half_width
        return f"{self.loss} {mean:+.{digits}f} ± {half:.{digits}f}{_MARKS[self.mark]}"


@dataclass(frozen=True)
class SeenRegime:
    """A regime of a study with one network: what its data are, and what was measured.

    Its own name tells it from regimes whose numbers are alike, as with wrong labels among all classes.
    """

    name: str
    regime: str
    situation: Situation
    measured: tuple[Measured, ...]

    def __str__(self) -> str:
        best = sorted(self.measured, key=lambda measured: -measured.difference.mean)[:_LOSSES]
        return f"{_described(self.situation)}: {self.regime} ({self.name}): {', '.join(map(str, best))}"


def seen(asked: Situation, shipped: Iterable[Findings]) -> list[SeenRegime]:
    """Return what was measured in the situations nearest to the one that is asked for, the nearest first.

    Differences to the baseline count in the metric of the search, if every loss was searched more than once. Numbers
    are compared by their ratio, and noise by its difference. Of the nearest situation all studies are returned, of the
    others the one with most losses.

    Args:
        asked: The situation.
        shipped: The findings.
    """
    regimes = [regime for result in shipped for regime in _regimes(result)]
    regimes.sort(key=lambda regime: (_distance(asked, regime.situation), -len(regime.measured)))
    situations = list(dict.fromkeys(regime.situation for regime in regimes))[:_SITUATIONS]
    first = [regime for regime in regimes if regime.situation in situations[:1]]
    return first + [
        next(regime for regime in regimes if regime.situation == other) for other in situations[1:]
    ]


def _regimes(result: Findings) -> Iterator[SeenRegime]:
    columns: dict[tuple[str, str, int], list[Measured]] = {}
    for arm in result.study.arms:
        cell = result.table.cells.get((*row_and_column(result.study, result.table.across, arm), arm.metric))
        if cell and cell.difference and cell.difference.covers.startswith("searches"):
            measured = Measured(arm.loss.label, arm.metric, cell.difference, cell.mark)
            columns.setdefault((arm.regime.name, arm.model.label, arm.k), []).append(measured)
    for (regime, model, k), measures in columns.items():
        if (regime, k) in result.situations:
            yield SeenRegime(
                f"{result.study.name}, {model}", regime, result.situations[regime, k], tuple(measures)
            )


def _distance(asked: Situation, other: Situation) -> float:
    ours, theirs = ((s.images / s.classes, s.imbalance, s.k, math.sqrt(s.classes)) for s in (asked, other))
    ratios = sum(abs(math.log(own / their)) for own, their in zip(ours, theirs, strict=True))
    return ratios + _NOISE * abs(asked.noise - other.noise)


def rule(asked: Situation) -> Rule:
    """Return the rule of the documentation for a situation, and the losses to search.

    Example:
        >>> rule(Situation(classes=100, images=45_000, imbalance=1.0, noise=0.8, k=5))[1]
        ('cross_entropy', 'smooth_topk_svm', 'soft_topk_loss')
    """
    if asked.imbalance >= _LONG:
        return _TAIL
    return _WRONG if asked.noise >= _MOST else _USUAL


def _described(situation: Situation) -> str:
    tail = (
        f", largest class {situation.imbalance:.0f} times the smallest" if situation.imbalance >= 1.5 else ""
    )
    each = f"{situation.images / situation.classes:.0f} images of each"
    return f"{situation.classes} classes, {each}{tail}, noise {situation.noise:.2g}, K = {situation.k}"
