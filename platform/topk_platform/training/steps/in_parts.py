"""Scores of a split part by part, so that the scores of all samples for all classes are never in memory at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from topk_platform.calibration import brier_score, negative_log_likelihood
from topk_platform.data import Split
from topk_platform.metrics import Scorer, log_probabilities, measures_of_ranks, target_rank
from topk_platform.specs import Recipe
from topk_platform.training.steps.batches import Normalisation, prepared
from topk_platform.training.steps.stepping import precision

__all__ = ["SCORINGS", "PartsScored", "score_in_parts"]


class PartsScored(NamedTuple):
    """The measures and ranks of :class:`~topk_platform.training.setup.Scored`, without the scores.

    Args:
        measures: 1 if all scores are finite, else 0, followed by the measures: float64 ``(1 + measures,)``.
        rank: How many classes score above the true class, and how many other classes score the same, int64 ``(2, N)``.
        best: The classes that score highest, best first: as many as the largest k, int64 ``(N, K)``.
        split: The samples, N of them.
        groups: Masks over the classes, bool ``(L,)``: many-, medium- and few-shot.
        clusters: The name of the groups of samples, such as "patients"; empty if there are none.
    """

    measures: Tensor
    rank: Tensor
    best: Tensor
    split: Split
    groups: tuple[Tensor, ...]
    clusters: str = ""

    @property
    def cluster(self) -> Tensor | None:
        """The group of each sample, int64 ``(N,)``; None if there are no groups."""
        return None if self.split.groups is None else self.split.groups.cpu()

    @property
    def ranks(self) -> Tensor:
        """Four numbers for each sample, as in :attr:`~topk_platform.training.setup.Scored.ranks`."""
        labels = self.split.labels
        group = torch.zeros_like(labels)
        for number, mask in enumerate(self.groups, 1):
            group += number * mask[labels]
        return torch.stack([*self.rank, labels, group]).cpu()

    def guesses(self, k: int) -> Tensor:
        """Return the k classes that score highest, best first, int64 ``(N, k)``; k is at most the study's largest."""
        return self.best[:, :k].cpu()


@torch.no_grad()
def score_in_parts(
    model: nn.Module,
    split: Split,
    normalisation: Normalisation | None,
    recipe: Recipe,
    device: str,
    scorer: Scorer,
) -> PartsScored:
    """Score a split as :func:`topk_platform.training.session.score` does, with the same numbers bit for bit.

    A part is as many samples as the network scores at once. Only the numbers that the measures need are kept: the true
    class's rank and the best K classes, and, where they are measured, the log-likelihood, the Brier score and the
    confidence.
    """
    model.eval()
    parts: list[dict[str, Tensor]] = []
    start = classes = 0
    for batch in split.in_order():
        with precision(device, recipe.numerics.bfloat16):
            scores = model(prepared(batch, normalisation, recipe.numerics.channels_last)).float()
        parts.append(_kept(scores, split.labels[start : start + len(scores)], scorer))
        start, classes = start + len(scores), scores.shape[1]
    kept = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    rank = torch.stack([kept.pop("greater"), kept.pop("tied")])
    best, finite = kept.pop("best"), kept.pop("finite").all().double()[None]
    measures = torch.cat([finite, measures_of_ranks(scorer, rank, split.labels, classes, kept)])
    return PartsScored(measures, rank, best, split, scorer.groups)


def _kept(scores: Tensor, labels: Tensor, scorer: Scorer) -> dict[str, Tensor]:
    """Return the numbers to keep from the scores ``(n, L)`` of a part, by name, with n rows each."""
    greater, tied = target_rank(scores, labels)
    best = scores.topk(min(max(scorer.topk), scores.shape[1])).indices
    kept = {"greater": greater, "tied": tied, "best": best, "finite": scores.isfinite().all(1)}
    if not {"nll", "brier", "ece"} & {*scorer.measures}:
        return kept
    logs = log_probabilities(scores)
    rows, own = logs[:, None], labels[:, None]  # each sample alone, for means over samples
    errors = {"nll": negative_log_likelihood(rows, own), "brier": brier_score(rows, own)}
    return {**kept, **errors, "confidence": logs.amax(-1).exp()}


SCORINGS: dict[str, Callable[..., PartsScored]] = {"parts": score_in_parts}
"""The other ways to score a split, by the name in ``Recipe.scoring``."""
