"""Descriptions of data, and comparisons of a loss with the baseline on data of a description."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from topk_platform.errors import UserError
from topk_platform.records import Tally
from topk_platform.results.cells import Cell
from topk_platform.results.statistics import Estimate
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import FEATURES, Arm, Parameter, Regime, Study, digest, images_of
from topk_platform.specs.checks import check
from topk_platform.specs.fields import Count, Rule, Share, check_fields

__all__ = ["Compared", "Situation", "Situations", "comparisons", "searched_pairs"]

_NOISE = 0.05  # added to both shares, because a ratio to zero noise is infinite


@dataclass(frozen=True)
class Situation:
    """A description of data: the data to choose a loss for, or the data of a study's regime.

    Args:
        classes: The number of classes.
        images: Training images, of all classes together.
        imbalance: The largest class's number of images over the smallest's.
        noise: The share of training labels that are replaced at random.
        k: K, the number of guesses that count.

    Raises:
        UserError: if a number is out of range, or K is not below the number of classes.
    """

    classes: Annotated[int, Rule("at least 2", lambda value: value >= 2)]
    images: Count
    imbalance: Annotated[float, Rule("at least 1, the largest class over the smallest", lambda v: v >= 1)] = (
        1.0
    )
    noise: Share = 0.0
    k: Count = 5

    def __post_init__(self) -> None:
        try:
            check_fields(self)
        except UserError as error:  # the numbers are arguments of `recommend` too, so the class is not named
            raise UserError(str(error).removeprefix("Situation.")) from error
        check(
            self.k < self.classes,
            f"k must be below the number of classes, got {self.k} of {self.classes} classes",
        )
        check(
            self.images >= self.classes,
            f"images must be at least the number of classes, got {self.images} of {self.classes} classes",
        )

    @property
    def per_class(self) -> float:
        """Images of a class, on average."""
        return self.images / self.classes

    def ratios(self, other: Situation) -> dict[str, float]:
        """Return the ratio of two situations in each respect, the larger over the smaller: 1 where they are equal.

        For label noise, 0.05 is added to both shares first, so that zero noise has a ratio too.

        Example:
            >>> near = Situation(100, 50_000, noise=0.15).ratios(Situation(200, 50_000, noise=0.05))
            >>> {name: round(ratio, 6) for name, ratio in near.items() if ratio > 1}
            {'classes': 2.0, 'images per class': 2.0, 'noise': 2.0}
        """
        pairs = {
            "classes": (self.classes, other.classes),
            "images per class": (self.per_class, other.per_class),
            "imbalance": (self.imbalance, other.imbalance),
            "noise": (self.noise + _NOISE, other.noise + _NOISE),
            "K": (self.k, other.k),
        }
        return {name: max(a, b) / min(a, b) for name, (a, b) in pairs.items()}

    def apart(self, other: Situation) -> float:
        """Return the distance: the product of all ratios, which is the sum of all differences on a log scale.

        Example:
            >>> round(Situation(100, 50_000, noise=0.15).apart(Situation(200, 50_000, noise=0.05)), 6)
            8.0
        """
        return math.prod(self.ratios(other).values())


@dataclass(frozen=True)
class Compared:
    """A loss compared with the baseline: one regime and one model of one study.

    Args:
        study: Its name.
        regime: The regime's name.
        model: The model's label.
        loss: The loss's label.
        baseline: The label of the loss that it is compared with.
        metric: The test metric.
        situation: The regime's description.
        cell: The loss's cell of the study's table.
        theirs: How the baseline's confirmations ended.
        values: The chosen configurations, one per search, the best by validation first.
        searches: How often each of the two arms was searched.
        kind: The kind of data in words: the dataset; for features, the dataset of their images.
        pretrained: Whether the network, or the network that computed the features, was pretrained on other data.
        setup: A hash. Two studies with the same hash and the same situation make the same comparison. Empty if it is
            not known.
    """

    study: str
    regime: str
    model: str
    loss: str
    baseline: str
    metric: str
    situation: Situation
    cell: Cell
    theirs: Tally
    values: tuple[Mapping[str, Parameter], ...] = ()
    searches: int = 1
    kind: str = ""
    pretrained: bool = False
    setup: str = ""

    @property
    def counts(self) -> bool:
        """Whether its metric is the one that recommendations use: top-K accuracy at the situation's own K."""
        return self.metric == f"top{self.situation.k}"

    @property
    def measured(self) -> str:
        """The kind of data and the network, in words."""
        return f"{self.kind}, {self.model}{', pretrained' if self.pretrained else ''}"

    @property
    def name(self) -> str:
        """``study: regime/model/loss``."""
        return f"{self.study}: {self.regime}/{self.model}/{self.loss}"

    @property
    def ahead(self) -> Estimate:
        """How far the loss is ahead of the baseline."""
        assert self.cell.difference is not None  # noqa: S101 - a cell without a difference is not compared
        return self.cell.difference


Situations = Mapping[tuple[str, int], Situation]
"""The description of each regime at each K, by the regime's name and K."""


def comparisons(table: Table, situations: Situations) -> Iterable[Compared]:
    """Yield the comparison of every searched loss with its searched baseline, for each top-K test accuracy.

    Regimes without a description are left out.

    Args:
        table: The study's table.
        situations: The descriptions of its regimes.
    """
    study = table.study
    for arm, baseline in searched_pairs(study):
        if (situation := situations.get((arm.regime.name, arm.k))) is None:
            continue
        key, beside = (row_and_column(study, table.across, one) for one in (arm, baseline))
        for metric in dict.fromkeys((f"top{arm.k}", *(m for m in study.show if m.startswith("top")))):
            cell, theirs = table.cells.get((*key, metric)), table.cells.get((*beside, metric))
            if cell is None or cell.difference is None or theirs is None:
                continue
            yield Compared(
                study=study.name,
                regime=arm.regime.name,
                model=arm.model.label,
                loss=arm.loss.label,
                baseline=baseline.loss.label,
                metric=metric,
                situation=situation,
                cell=cell,
                theirs=theirs.confirmed,
                values=_values(table, arm, key),
                searches=study.searches,
                kind=_kind(arm.regime),
                pretrained=arm.regime.dataset == FEATURES or bool(arm.model.options.get("weights")),
                setup=_setup(arm, baseline),
            )


def searched_pairs(study: Study) -> list[tuple[Arm, Arm]]:
    """Return the pairs of a searched arm and the searched baseline that its loss is compared with.

    Variants of a loss, as in ablations, are left out. These are arms whose loss is the baseline's. If several arms have
    the same loss, regime and model, only the arm whose label is the loss's name is kept.
    """
    keys: dict[tuple[str, str], list[Arm]] = {}
    for arm in study.arms:
        if arm.is_searched:
            keys.setdefault((arm.regime.name, arm.model.label), []).append(arm)
    result = []
    for arms in keys.values():
        named = Counter(arm.loss.name for arm in arms)
        for baseline in (arm for arm in arms if arm.loss.label == study.baseline):
            result += [
                (arm, baseline)
                for arm in arms
                if arm.loss.name != baseline.loss.name
                and (named[arm.loss.name] == 1 or arm.loss.label == arm.loss.name.rpartition(":")[2])
            ]
    return result


def _kind(regime: Regime) -> str:
    """Return the kind of data in words."""
    return f"features of {images_of(regime)}" if regime.dataset == FEATURES else regime.dataset


def _setup(arm: Arm, baseline: Arm) -> str:
    """Return the hash of a comparison without the regime's conditions, which its situation describes."""
    losses = [(one.loss.name, one.loss.space, one.loss.fixed, one.loss.head) for one in (arm, baseline)]
    model, data = (arm.model.name, arm.model.options), (arm.regime.dataset, arm.regime.options)
    return digest((data, model, losses, arm.recipe, arm.metric, arm.protocol.sampler))


def _values(table: Table, arm: Arm, arm_key: tuple[str, str]) -> tuple[Mapping[str, Parameter], ...]:
    choices = sorted(table.choices.get(arm_key, ()), key=lambda choice: -choice.validation)
    result = [arm.loss.parameters(choice.values) for choice in choices]
    return tuple(result or [arm.loss.parameters({})])
