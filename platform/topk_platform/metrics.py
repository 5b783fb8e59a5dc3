"""Top-k accuracy with expected credit for ties: plain, by class, as the least K, and of sets; and calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from topk_platform.specs import Measure, accuracy_names, candidate_names, coverage_names, measure_of

__all__ = [
    "Scorer",
    "calibration_error",
    "candidates",
    "cut_of",
    "inside",
    "log_probabilities",
    "macro_average",
    "target_rank",
    "topk_credit",
]


def target_rank(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many scores are above the target's, and how many others equal it. A row with a NaN ranks last.

    Args:
        scores: ``(..., L)``.
        target: int64 ``(...)``, as are both results.
    """
    own = scores.gather(-1, target.unsqueeze(-1))
    greater = (scores > own).sum(-1)
    tied = (scores == own).sum(-1) - 1
    nan = scores.isnan().any(-1)
    return greater.masked_fill(nan, scores.shape[-1]), tied.masked_fill(nan, 0)


def topk_credit(scores: Tensor, target: Tensor, topk: Sequence[int]) -> Tensor:
    """Return each sample's expected top-k hit under random tie-breaking.

    With g scores above that of the target and t others equal to it, the credit is
    ``clip((k - g) / (t + 1), 0, 1)``. A row with a NaN scores 0.

    Args:
        scores: ``(..., L)``.
        target: int64 ``(...)``.
        topk: The values of k.

    Returns:
        float64 ``(len(topk), ...)``.

    Example:
        >>> topk_credit(torch.zeros(1, 4), torch.tensor([2]), [1, 2]).flatten().tolist()
        [0.25, 0.5]
    """
    return _credit(*target_rank(scores, target), topk)


def _credit(greater: Tensor, tied: Tensor, topk: Sequence[int]) -> Tensor:
    return torch.stack([((k - greater).double() / (tied + 1)).clamp(0, 1) for k in topk])


def candidates(greater: Tensor, tied: Tensor, classes: int, accuracy: float) -> Tensor:
    """Return the least K whose top-K accuracy reaches ``accuracy`` (sawada2020, V-B); NaN where even K = L does not.

    ``greater`` and ``tied`` are the results of :func:`target_rank`, ``(..., N)``; ``classes`` is L.

    Example:
        >>> scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> candidates(*target_rank(scores, torch.tensor([0, 1])), 3, 0.99).item()
        2.0
    """
    # A sample's credit rises by 1 / (t + 1) at each K from g + 1 to g + t + 1: second differences, summed twice.
    rise = torch.zeros((*greater.shape[:-1], classes + 3), dtype=torch.float64, device=greater.device)
    step = 1 / (tied + 1).double()
    rise.scatter_add_(-1, greater + 1, step)
    rise.scatter_add_(-1, greater + tied + 2, -step)
    curve = rise.cumsum(-1).cumsum(-1)[..., 1 : classes + 1] / greater.shape[-1]
    enough = curve >= accuracy - 1e-9  # sums of fractions are not exact
    return torch.where(enough.any(-1), enough.double().argmax(-1) + 1.0, torch.nan)


def macro_average(credit: Tensor, target: Tensor, classes: int) -> Tensor:
    """Return the mean ``(...)`` of the mean credits of the classes that occur; credits and labels are ``(..., N)``."""
    return _mean_of_classes(*_by_class(credit, target, classes), torch.ones((), dtype=torch.bool))


def _by_class(credit: Tensor, target: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    target = target.expand_as(credit)
    empty = torch.zeros((*credit.shape[:-1], classes), dtype=credit.dtype, device=credit.device)
    counts = empty.scatter_add(-1, target, torch.ones_like(credit))
    return empty.scatter_add(-1, target, credit), counts


def _mean_of_classes(sums: Tensor, counts: Tensor, group: Tensor) -> Tensor:
    # Boolean indexing would wait for the device. The result is NaN if the group has no class.
    chosen = group.to(counts.device) & (counts > 0)
    means = torch.where(chosen, sums / counts.clamp(min=1), 0)
    return means.sum(-1) / chosen.sum(-1)


def log_probabilities(scores: Tensor) -> Tensor:
    """Return the logarithms of the softmax in float64; a row with a NaN has -inf everywhere.

    Probabilities themselves would round to the same value near 0 or 1.

    Args:
        scores: ``(..., L)``; the result is float64 ``(..., L)``.
    """
    return scores.double().log_softmax(-1).nan_to_num(nan=-math.inf, neginf=-math.inf)


def cut_of(logs: Tensor, target: Tensor, measure: Measure) -> Tensor:
    """Return the threshold of a split's sets: the least log probability in them, and the chance that ties are included.

    A set holds all classes above the threshold, and each class that equals it with the chance: float64 ``(..., 2)``.

    - ``average``: sets hold K classes on average. The threshold is the nK-th largest of the split's nL probabilities;
      the chance breaks ties at random, as in :func:`topk_credit`, so that a constant network gets K / L.
    - ``size``: split conformal sets, which hold the true class of p percent of other samples: the threshold is the true
      classes' ``ceil((n + 1) p / 100)``-th largest probability; with too few samples sets hold every class. Ties are
      included (chance 1); otherwise the coverage would be too low.

    Args:
        logs: The result of :func:`log_probabilities` for the validation split, ``(..., N, L)``.
        target: int64 ``(..., N)``.
        measure: Of kind ``"average"`` or ``"size"``.

    Source:
        Garcin et al. 2023 on average-K; Ding et al. 2025, and Vovk et al. 2005, on conformal sets.
    """
    samples = target.shape[-1]
    if measure.kind == "size":
        rank = -(-(samples + 1) * measure.number // 100)
        own = logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        least = own.new_full(own.shape[:-1], -math.inf)
        least = _largest(own, rank) if rank <= samples else least
        return torch.stack([least, torch.ones_like(least)], -1)
    rank = samples * min(measure.number, logs.shape[-1])
    least = _largest(logs.flatten(-2), rank)
    above = (logs > least[..., None, None]).sum((-1, -2))
    equal = (logs == least[..., None, None]).sum((-1, -2))
    return torch.stack([least, (rank - above) / equal], -1)


def _largest(values: Tensor, rank: int) -> Tensor:
    if values.is_cuda:  # torch refuses kthvalue there in deterministic mode
        return values.sort(descending=True).values[..., rank - 1]
    return values.kthvalue(values.shape[-1] - rank + 1).values


def inside(values: Tensor, cut: Tensor) -> Tensor:
    """Return the chance that classes of log probabilities ``(..., N)`` or ``(..., N, L)`` are in their sets.

    ``cut`` is the result of :func:`cut_of`, ``(..., 2)``, with dimensions before the last that fit the values.
    """
    return (values > cut[..., 0]).double() + (values == cut[..., 0]) * cut[..., 1]


def _likelihood(_scores: Tensor, logs: Tensor, target: Tensor) -> Tensor:
    return -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1).mean(-1)


def _brier(_scores: Tensor, logs: Tensor, target: Tensor) -> Tensor:
    """The mean squared distance of the probabilities from the true class's indicator (Brier 1950), in ``[0, 2]``."""
    probabilities = logs.exp()
    own = probabilities.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (probabilities.square().sum(-1) - 2 * own + 1).mean(-1)


def _calibration(scores: Tensor, logs: Tensor, target: Tensor) -> Tensor:
    return calibration_error(logs.amax(-1).exp(), topk_credit(scores, target, (1,))[0])


_ERRORS = {"brier": _brier, "ece": _calibration, "nll": _likelihood}


@dataclass(frozen=True)
class Scorer:
    """Measures a split for a network or a stack of them, without waiting for the device.

    Args:
        topk: The k of the accuracies.
        targets: Accuracies; for each, the least K that reaches it is measured.
        groups: Masks over the classes, bool ``(..., L)``: many-, medium- and few-shot.
        measures: Further measures, such as ``"autkc5"``, ``"average5"``, ``"size95"`` and ``"nll"``.
        cuts: Thresholds of sets, float64 ``(..., sets, 2)``, one per measure of sets; by default from the split itself,
            which is valid for the validation split only.

    Example:
        >>> scorer = Scorer((1,), (), (torch.tensor([True, False]),) + (torch.tensor([False, True]),) * 2)
        >>> values = scorer(torch.eye(2), torch.tensor([0, 0]))
        >>> scorer.named(values.tolist())
        {'top1': 0.5, 'macro_top1': 0.5, 'many_top1': 0.5}
    """

    topk: tuple[int, ...]
    targets: tuple[float, ...]
    groups: tuple[Tensor, ...]
    measures: tuple[str, ...] = ()
    cuts: Tensor | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all measures, in the order of the values."""
        asked = self.measures + coverage_names(self.measures)
        return accuracy_names(self.topk) + asked + candidate_names(self.targets)

    @property
    def _measures(self) -> tuple[Measure, ...]:
        return tuple(measure for name in self.measures if (measure := measure_of(name)) is not None)

    @property
    def sets(self) -> tuple[Measure, ...]:
        """The measures of sets, whose thresholds come from the validation split."""
        return tuple(measure for measure in self._measures if measure.is_of_sets)

    def cut_by(self, logits: Tensor, target: Tensor) -> Scorer:
        """Return the scorer with the thresholds of sets taken from a split: that of validation."""
        return replace(self, cuts=self._cuts(log_probabilities(logits), target)) if self.sets else self

    def _cuts(self, logs: Tensor, target: Tensor) -> Tensor:
        return torch.stack([cut_of(logs, target, measure) for measure in self.sets], -2)

    def __call__(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the measures, float64 ``(..., names)``, of scores ``(..., N, L)`` and labels ``(..., N)``."""
        greater, tied = target_rank(scores, target)
        credit = _credit(greater, tied, self.topk)
        sums, counts = _by_class(credit, target, scores.shape[-1])
        everything = torch.ones_like(counts[0], dtype=torch.bool)
        means = [_mean_of_classes(sums, counts, group) for group in (everything, *self.groups)]
        curves = {
            measure: _credit(greater, tied, range(1, measure.number + 1)).mean(-1).mean(0)
            for measure in self._measures
            if measure.kind == "autkc"
        }
        asked = self._further_measures(scores, target, curves) if self.measures else []
        least = [candidates(greater, tied, scores.shape[-1], accuracy)[None] for accuracy in self.targets]
        return torch.cat([credit.mean(-1), *means, *asked, *least]).movedim(0, -1)

    def _further_measures(
        self, scores: Tensor, target: Tensor, values: dict[Measure, Tensor]
    ) -> list[Tensor]:
        """Return the further measures in the names' order, ``(1, ...)`` each; ``values`` has the areas under curves."""
        covered: list[Tensor] = []
        logs = log_probabilities(scores) if len(values) < len(self._measures) else scores
        values |= {m: _ERRORS[m.kind](scores, logs, target) for m in self._measures if m.kind in _ERRORS}
        if self.sets:
            cuts = self._cuts(logs, target) if self.cuts is None else self.cuts
            own = logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            own = own.masked_fill(scores.isnan().any(-1), math.nan)  # such a sample's class is in no set
            for index, measure in enumerate(self.sets):
                cut = cuts[..., index, None, :]
                credit = inside(own, cut)
                values[measure] = credit.mean(-1)
                if measure.kind == "size":
                    # The sums of inside(...) over the classes, without a float64 tensor for all of them.
                    least, chance = cut[..., None, 0], cut[..., 1]
                    size = (logs > least).sum(-1) + (logs == least).sum(-1) * chance
                    values[measure] = size.mean(-1)
                    covered += [credit.mean(-1), macro_average(credit, target, scores.shape[-1])]
        return [value[None] for value in (*(values[measure] for measure in self._measures), *covered)]

    def named(self, values: Sequence[float]) -> dict[str, float]:
        """Return the measures by name, without those of groups that have no class in the split."""
        return {name: value for name, value in zip(self.names, values, strict=True) if not math.isnan(value)}


def calibration_error(confidence: Tensor, hit: Tensor, bins: int = 15) -> Tensor:
    """Return the expected calibration error over bins of equally many samples.

    Samples are sorted by their confidence and divided into bins whose sizes differ by one at most. The error is the
    mean, weighted by these sizes, of the absolute differences between a bin's mean confidence and its share of hits.
    Samples of the same confidence count with their mean hit, so that their order does not matter.

    Args:
        confidence: The probability of the predicted class, float64 ``(..., N)``.
        hit: 1 if the predicted class is the true one, else 0; for tied classes the expectation; float64 ``(..., N)``.
        bins: The number of bins; with fewer samples than this, each sample is a bin.

    Source:
        Naeini, Cooper and Hauskrecht, AAAI 2015; with bins of equal mass, Roelofs et al., AISTATS 2022.

    Example:
        >>> calibration_error(torch.tensor([0.9, 0.6]).double(), torch.tensor([1.0, 0.0]).double(), bins=1).item()
        0.25
    """
    samples = confidence.shape[-1]
    confidence, order = confidence.sort(-1)
    block = functional.pad((confidence[..., 1:] != confidence[..., :-1]).long(), (1, 0)).cumsum(-1)
    hit, empty = hit.gather(-1, order), torch.zeros_like(hit)
    sums, counts = (empty.scatter_add(-1, block, of) for of in (hit, torch.ones_like(hit)))
    hit = (sums / counts.clamp(min=1)).gather(-1, block)  # the mean of its block
    numbers = torch.arange(samples, device=hit.device) * bins // samples
    gaps = torch.zeros((*hit.shape[:-1], bins), dtype=hit.dtype, device=hit.device)
    return gaps.scatter_add(-1, numbers.expand_as(block), confidence - hit).abs().sum(-1) / samples
