"""Claims decided by a store's results: confirmed, refuted or undecided, with the test's power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from topk_platform.results.contrast_results import ContrastResult, of_store
from topk_platform.results.from_store import Held, read
from topk_platform.results.statistics import Estimate, Precision
from topk_platform.results.statistics.repeated_looks import level_at_plan, level_now
from topk_platform.specs import Claim, Contrast, Study, scale_of
from topk_platform.specs.fields import check_call

__all__ = ["Decision", "Evidence", "Verdict", "decide", "decided", "decisions_of"]

Verdict = Literal["confirmed", "refuted", "undecided", "waits for data"]

_LEVEL = 0.975  # one-sided, as a 95 % interval's end
_EQUIVALENCE = 0.95  # the level of each of the two one-sided tests
_LEAST_SEEDS = 3
_POWER = 0.8


@dataclass(frozen=True)
class Evidence:
    """The evidence on one contrast of a claim.

    Args:
        contrast: The contrast.
        estimate: The contrast's estimate, as a fraction of 1 for accuracies; None without data.
        verdict: The verdict on this contrast.
        effect: The size that ``power`` and ``seeds`` assume, in points. It is the paper's number if that confirms the
            claim, otherwise twice the tolerance beyond the bound; 0 for ``"within"``. None if there is neither a number
            nor a tolerance, or if the contrast was not tested.
        power: The chance of confirming the claim with these seeds and images if ``effect`` were the truth.
        seeds: The number of seeds that a study must plan to confirm ``effect`` with a chance of 80 %, by the measured
            variance. If searches are repeated, these are the seeds of more searches, with as many for each as now. None
            without ``effect``, or if even 10,000 are too few because there are too few test images.
        why: The reason why the contrast was not tested; empty if it was tested.
        planned: How many seeds the study plans.
        reach: Half the width of the interval that decides, in points. Over all looks together, the interval covers the
            truth in 95 % of studies, or in 90 % for ``"within"``. None if the contrast was not tested.
    """

    contrast: Contrast
    estimate: Estimate | None
    verdict: Verdict
    effect: float | None = None
    power: float | None = None
    seeds: int | None = None
    why: str = ""
    planned: int = 0
    reach: float | None = None


@dataclass(frozen=True)
class Decision:
    """A claim with its verdict: refuted if one of its contrasts is refuted, confirmed if all are confirmed.

    Args:
        claim: The claim.
        evidence: The evidence on each contrast, in the claim's order.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        verdicts = {result.verdict for result in self.evidence}
        if len(verdicts) == 1:
            return verdicts.pop()
        order: tuple[Verdict, ...] = ("refuted", "waits for data", "undecided")
        return next(verdict for verdict in order if verdict in verdicts)


def decide(
    study: Study, *, store: str | Path = "runs", trials: int | None = None, seeds: int | None = None
) -> tuple[Decision, ...]:
    """Return the verdicts of a store's results on a study's claims.

    A contrast is confirmed if a one-sided test at 0.025 shows that it is beyond the bound by more than the tolerance.
    For ``"within"``, two one-sided tests at 0.05 must show that it is between the tolerances. A contrast is refuted if
    a one-sided test shows the opposite.

    A claim is confirmed only if all its contrasts are, so each is tested at the full level. One contrast is enough to
    refute it, so 0.025 is divided by the number of contrasts. Claims are not corrected for one another, because each is
    a question of its own.

    The levels hold however often the results are looked at while seeds are added (O'Brien and Fleming's boundary). The
    planned number of seeds is that of the study's definition, whatever budget was requested. A contrast of an arm that
    was searched only once is not decided, because no interval contains the luck of its search. If the definition has
    one search, the plan of such a contrast is therefore the first number of searches that is requested.

    Args:
        study: The study, with its claims.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of those that the last run was asked for.
        seeds: Confirmation seeds per arm, instead of the last run's; the plan remains the study's.

    Raises:
        UserError: if the store holds something else.
    """
    check_call(decide, locals())
    return decided(read(study, store, trials, seeds))


def decided(held: Held) -> tuple[Decision, ...]:
    """Return these results' verdicts on their study's claims, see :func:`decide`."""
    return decisions_of(held.study, of_store(held))


def decisions_of(study: Study, results: Sequence[ContrastResult]) -> tuple[Decision, ...]:
    """Return the verdicts on a study's claims.

    Args:
        study: The study.
        results: The results of all contrasts, in the claims' order.
    """
    following = iter(results)
    return tuple(
        Decision(
            claim,
            tuple(
                _evidence(claim, one, next(following), _printed(study, one), _planned(study, one))
                for one in claim.contrasts
            ),
        )
        for claim in study.claims
    )


def _planned(study: Study, contrast: Contrast) -> int:
    """Return how many seeds are planned for a contrast.

    One search decides nothing about arms that search. If the definition has one, no look before the repeated searches
    could confirm anything, and each of these has as many seeds as the definition.
    """
    searches, seeds = study.plan or (study.searches, study.seeds)
    searched = {arm.name for arm in study.arms if arm.is_searched}
    return seeds * study.searches if searches == 1 and searched & contrast.weights.keys() else seeds


def _printed(study: Study, contrast: Contrast) -> float | None:
    """Return a contrast's value by a paper's numbers, in points; None if the paper lacks one of them."""
    arms = {arm.name: arm for arm in study.arms}
    total = 0.0
    for name, weight in contrast.weights.items():
        number = study.published_of(arms[name], contrast.metric)
        if number is None:
            return None
        total += weight * number.value
    return total


def _evidence(
    claim: Claim, contrast: Contrast, result: ContrastResult, printed: float | None, planned: int = 0
) -> Evidence:
    estimate = result.estimate
    if result.why or estimate is None or estimate.precision is None:
        verdict: Verdict = "waits for data" if result.waits else "undecided"
        return Evidence(contrast, estimate, verdict, why=result.why, planned=planned)
    scale = scale_of(contrast.metric)
    precision = estimate.precision.scaled(scale)
    judged = _Judged(claim, scale * estimate.mean, precision, estimate.n, planned or estimate.n)
    effect = judged.effect(printed)
    return Evidence(
        contrast,
        estimate,
        judged.verdict(),
        effect,
        None if effect is None else judged.power(effect),
        None if effect is None else judged.seeds(effect),
        planned=judged.planned,
        reach=judged.reach(),
    )


@dataclass(frozen=True)
class _Judged:
    """One contrast's result with its claim, in points, and the numbers of present and of planned seeds."""

    claim: Claim
    mean: float
    precision: Precision
    n: int
    planned: int

    def verdict(self) -> Verdict:
        if all(self._shown(gap, self._confirming) for gap in self._for()):
            return "confirmed"
        level = 1 - (1 - _LEVEL) / len(self.claim.contrasts)
        return "refuted" if any(self._shown(gap, level) for gap in self._against()) else "undecided"

    @property
    def _confirming(self) -> float:
        return _EQUIVALENCE if self.claim.direction == "within" else _LEVEL

    def _shown(self, gap: float, level: float) -> bool:
        return gap > self._width(level)

    def _width(self, level: float) -> float:
        return self.precision.error() * self.precision.critical(level_now(level, self.n, self.planned))

    def reach(self) -> float:
        return self._width(self._confirming)

    def _for(self, mean: float | None = None) -> Sequence[float]:
        """Return how far a mean is beyond each limit of the claim; to confirm, all must be shown to be positive."""
        mean, claim = self.mean if mean is None else mean, self.claim
        if claim.direction == "within":
            return claim.tolerance - mean, claim.tolerance + mean
        beyond = (mean - claim.bound) if claim.direction == "above" else (claim.bound - mean)
        return (beyond - claim.tolerance,)

    def _against(self) -> Sequence[float]:
        """Return how far the mean is on the other side of each limit; to refute, one is enough."""
        claim = self.claim
        if claim.direction == "within":
            return self.mean - claim.tolerance, -self.mean - claim.tolerance
        return (-self._for()[0],)

    def effect(self, printed: float | None) -> float | None:
        """Return the true value for which power and seeds are given."""
        claim = self.claim
        if claim.direction == "within":
            return 0.0
        if printed is not None and self._for(printed)[0] > 0:
            return printed
        sign = 1 if claim.direction == "above" else -1
        return claim.bound + sign * 2 * claim.tolerance if claim.tolerance else None

    def power(self, effect: float) -> float:
        level = level_now(self._confirming, self.n, self.planned)
        missed = sum(1 - self.precision.power(gap, level=level) for gap in self._for(effect))
        return max(0.0, 1 - missed)

    def seeds(self, effect: float) -> int | None:
        """Return how many seeds a study must plan; this depends on the variance, not on the mean."""
        gaps = self._for(effect)
        each = 1 - (1 - _POWER) / len(gaps)  # the tests of both limits of "within" must succeed
        rows = self.precision.rows_for(min(gaps), level_at_plan(self._confirming), each)
        if rows is None:
            return None
        # A row is a seed, or a search with its seeds.
        return max(_LEAST_SEEDS, math.ceil(rows * self.n / self.precision.rows))
