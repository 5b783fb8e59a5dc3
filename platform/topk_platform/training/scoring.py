"""Scores of a network on a split, by one crop or by ten, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topk_losses.operators import inclusion_probabilities
from topk_platform.data import Dataset, Images, Split, shots
from topk_platform.metrics import Scorer, target_rank
from topk_platform.specs import Recipe, Trial
from topk_platform.training.steps.batches import Normalisation, prepared
from topk_platform.training.steps.optim import precision

__all__ = ["Scored", "score", "score_crops", "score_test", "scorer_of"]

_LAST = 1 - 2**-24
_POSITIONS = (None, (0.0, 0.0), (0.0, _LAST), (_LAST, 0.0), (_LAST, _LAST))


class Scored(NamedTuple):
    """The scores of a network on a split, and the measures computed from them.

    Args:
        measures: 1 if all scores are finite, else 0, followed by the measures: float64 ``(1 + measures,)``.
        scores: ``(N, L)``.
        split: The samples, N of them.
        groups: Masks over the classes, bool ``(L,)``: many-, medium- and few-shot.
        averaged: Whether the scores are sums of probabilities, over several crops.
        clusters: The name of the groups of samples, such as "patients"; empty if there are none.
    """

    measures: Tensor
    scores: Tensor
    split: Split
    groups: tuple[Tensor, ...]
    averaged: bool = False
    clusters: str = ""

    @property
    def cluster(self) -> Tensor | None:
        """The group of each sample, int64 ``(N,)``; None if there are no groups."""
        return None if self.split.groups is None else self.split.groups.cpu()

    @property
    def logits(self) -> Tensor:
        """Scores whose softmax gives the probabilities, ``(N, L)``."""
        return self.scores.double().log() if self.averaged else self.scores

    @property
    def ranks(self) -> Tensor:
        """Four numbers for each sample, from which tables and statistics are computed, int64 ``(4, N)``.

        They are: the number of classes that score above the true class; the number of other classes that score the
        same; the true class; and 1, 2 or 3 if that class is many-, medium- or few-shot, or 0 if there are no such
        groups.
        """
        labels = self.split.labels
        group = sum(
            (number * mask[labels] for number, mask in enumerate(self.groups, 1)), torch.zeros_like(labels)
        )
        return torch.stack([*target_rank(self.scores, labels), labels, group]).cpu()

    def guesses(self, k: int) -> Tensor:
        """Return the k classes that score highest, best first, int64 ``(N, k)``. The order of ties is undefined."""
        return self.scores.topk(min(k, self.scores.shape[-1])).indices.cpu()


def scorer_of(trial: Trial, dataset: Dataset) -> Scorer:
    """Return the scorer of the trial's splits.

    Raises:
        ValueError: if a metric that selects is over a group of classes that is empty, or that is the only one.
    """
    groups = shots(dataset.class_counts)
    # If there is one group, its accuracy is the macro average.
    several = sum(bool(mask.any()) for mask in groups.values()) > 1
    groups = {name: mask & several for name, mask in groups.items()}
    for metric in (trial.arm.metric, *trial.arm.recipe.keep):
        mask = groups.get(metric.partition("_")[0])
        if mask is not None and not mask.any():
            counts = dataset.class_counts.tolist()
            raise ValueError(
                f"metric {metric} needs a split with classes of that group and of others, got class counts {counts}"
            )
    masks = tuple(mask.to(trial.device) for mask in groups.values())
    return Scorer(trial.topk, trial.targets, masks, trial.measures)


def score_test(score: Callable[[Split, Scorer], Scored], dataset: Dataset, scorer: Scorer) -> Scored:
    """Score the test split. Thresholds of sets come from the validation split.

    Args:
        score: Scores a split with the network.
        dataset: The splits.
        scorer: The measures.
    """
    if scorer.sets:
        scored = score(dataset.validation, replace(scorer, measures=()))
        scorer = scorer.cut_by(scored.logits, scored.split.labels)
    return score(dataset.test, scorer)._replace(
        clusters=dataset.groups if dataset.test.groups is not None else ""
    )


@torch.no_grad()
def score(
    model: nn.Module,
    split: Split,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    scorer: Scorer,
) -> Scored:
    """Score a split with a network, which is left in evaluation mode."""
    model.eval()
    numerics = recipe.numerics
    with precision(device, numerics.bfloat16):
        # Copies, because a network whose first layer works in place would change the data of every later trial.
        parts = [
            model(prepared(part, normalisation, numerics.channels_last)).float() for part in split.in_order()
        ]
    scores = torch.cat(parts)
    measures = torch.cat([scores.isfinite().all().double()[None], scorer(scores, split.labels)])
    return Scored(measures, scores, split, scorer.groups)


@torch.no_grad()
def score_crops(
    model: nn.Module,
    split: Split,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    scorer: Scorer,
) -> Scored:
    """Score a split by ten crops of each image: the middle, the four corners, and their mirror images.

    Otherwise it works as :func:`topk_platform.training.scoring.score`. Each crop's scores become probabilities, and
    their sum over the crops is ranked. ``recipe.test_crops`` chooses the probabilities for top-k accuracy:
    ``"inclusion"`` takes the probability that a class is among the k best, where a set A of k classes has the weight
    ``exp(Σ_{j∈A} s_j)``; ``"softmax"`` takes the softmax for every k. The least K for an accuracy, the area under the
    curve and sets use the softmax. Unless pixels are kept in a cache, each image is decoded five times.

    Args:
        model: The network.
        split: Images in files.
        normalisation: The normalisation of uint8 images.
        recipe: The recipe, with the numerics and the kind of average.
        device: The network's device.
        scorer: The measures.

    Returns:
        The measures, and the sum of the crops' softmax as the scores.

    Raises:
        TypeError: if the split holds a tensor in place of images in files.

    Source:
        berrada2018 5.2 and appendix C; Krizhevsky et al. 2012.
    """
    model.eval()
    sizes = sorted({1, *scorer.topk}) if recipe.test_crops == "inclusion" else [1]
    totals, finite = _totals(model, split.inputs, normalisation, recipe, device, sizes)
    values: dict[str, Tensor] = {}
    for k in scorer.topk:
        part = replace(scorer, topk=(k,), targets=(), measures=())
        values |= zip(part.names, part(totals.get(k, totals[1]), split.labels), strict=True)
    softmax = replace(scorer, topk=(1,), measures=())
    values = dict(zip(softmax.names, softmax(totals[1], split.labels), strict=True)) | values
    if scorer.measures:
        sets = replace(scorer, topk=(1,), targets=())
        of_sets = zip(sets.names, sets(totals[1].double().log(), split.labels), strict=True)
        values |= {name: value for name, value in of_sets if name not in values}
    measures = torch.stack([finite.double(), *(values[name] for name in scorer.names)])
    return Scored(measures, totals[1], split, scorer.groups, averaged=True)


def _totals(
    model: nn.Module,
    images: Tensor | Images,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    sizes: list[int],
) -> tuple[dict[int, Tensor], Tensor]:
    """Sum each size's probabilities, ``(n, L)``, over the crops, and check whether all scores are finite."""
    if not isinstance(images, Images):
        raise TypeError("ten crops need images in files, got a tensor")
    totals: dict[int, Tensor] = {}
    finite = torch.ones((), dtype=torch.bool, device=device)
    for position in _POSITIONS:
        start = 0
        for batch in images.in_order(position):
            inputs = prepared(batch, normalisation, recipe.numerics.channels_last)
            rows = slice(start, start + len(inputs))
            start = rows.stop
            for view in (inputs, inputs.flip(3)):
                with precision(device, recipe.numerics.bfloat16):
                    scores = model(view).float()
                finite &= scores.isfinite().all()
                for k in sizes:
                    total = totals.setdefault(k, scores.new_zeros((len(images), scores.shape[1])))
                    total[rows] += inclusion_probabilities(scores, k) if k > 1 else scores.softmax(1)
    return totals, finite
