"""Claims decided by a study's results: confirmed, refuted or undecided, with the test's power."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from topk_platform.protocol import Tally
from topk_platform.results.contrasts import combined
from topk_platform.results.from_store import Held, read
from topk_platform.results.intervals import Estimate
from topk_platform.results.runs import Runs, runs_of_all
from topk_platform.results.significance import Precision
from topk_platform.specs import Claim, Contrast, Repeats, Study, scale_of
from topk_platform.specs.fields import check_call

__all__ = [
    "ContrastResult",
    "Decision",
    "Evidence",
    "Verdict",
    "decide",
    "decisions_of",
    "of_runs",
    "of_store",
    "planned_seeds",
    "why_not",
]

Verdict = Literal["confirmed", "refuted", "undecided", "waits for data"]

_LEVEL = 0.975  # one-sided, as a 95 % interval's end
_EQUIVALENCE = 0.95  # the level of each of the two one-sided tests
_LEAST_SEEDS = 3
_POWER = 0.8


@dataclass(frozen=True)
class ContrastResult:
    """The result of one contrast of a claim.

    Args:
        estimate: The contrast's estimate, as a fraction of 1 for accuracies; None without data.
        why: The reason why it cannot be tested; empty if it can.
        waits: Whether more data would change that.
    """

    estimate: Estimate | None
    why: str = ""
    waits: bool = False


@dataclass(frozen=True)
class Evidence:
    """The evidence on one contrast of a claim.

    Args:
        contrast: The contrast.
        estimate: The contrast's estimate, as a fraction of 1 for accuracies; None without data.
        verdict: The verdict on this contrast.
        effect: The size that ``power`` and ``seeds`` assume, in points: the paper's number if that confirms the claim,
            otherwise twice the tolerance beyond the bound; 0 for ``"within"``. With neither a number nor a tolerance it
            is the size that has a power of 80 %. None if the contrast was not tested.
        power: The chance of confirming the claim with these seeds and images if ``effect`` were the truth.
        seeds: The number of seeds that a study must plan to confirm ``effect`` with a chance of 80 %, by the measured
            variance; where searches are repeated, of more searches with as many seeds each. None if the contrast was
            not tested, or if even 10,000 are too few because there are too few test images.
        why: The reason why the contrast was not tested; empty if it was tested.
        planned: How many seeds the study plans.
    """

    contrast: Contrast
    estimate: Estimate | None
    verdict: Verdict
    effect: float | None = None
    power: float | None = None
    seeds: int | None = None
    why: str = ""
    planned: int = 0


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


def decide(study: Study, *, store: str | Path = "runs") -> tuple[Decision, ...]:
    """Return the verdicts of a store's results on a study's claims.

    A contrast is confirmed if a one-sided test at 0.025 shows that it is beyond the bound by more than the tolerance;
    for ``"within"``, if two at 0.05 show that it is between the tolerances. It is refuted if a test shows the opposite.

    A claim is confirmed only if all its contrasts are, so each is tested at the full level. One contrast is enough to
    refute it, so 0.025 is divided by the number of contrasts. Claims are not corrected for one another.

    The seeds that the study's definition plans decide, once, when they have all ended; before that a claim waits for
    data, and seeds that are added later change no verdict. So results can be looked at whenever one likes. A contrast
    of an arm that was searched only once is not decided, because no interval contains the luck of its search. If the
    definition has one search, the plan of such a contrast is therefore the first number of searches that is requested.

    Args:
        study: The study, with its claims.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store holds something else.
    """
    check_call(decide, locals())
    held = read(study, store)
    return decisions_of(held.study, of_store(held))


def of_store(held: Held) -> list[ContrastResult]:
    """Return the results of all contrasts of a study's claims by the planned seeds, in the claims' order."""
    study = held.study
    requested = {name for claim in study.claims for name in claim.arms}
    ranks = held.ranks if study.interval == "crossed" else None
    all_runs = runs_of_all(study, held.results)
    runs = {
        history.arm.name: all_runs[arm_id].with_ranks(ranks)
        for arm_id, history in held.histories.items()
        if history.arm.name in requested
    }
    once = {arm.name for arm in study.arms if arm.is_searched and arm.repeats.count == 1}
    contrasts = [contrast for claim in study.claims for contrast in claim.contrasts]
    return [of_runs(contrast, runs, once, planned_seeds(study, contrast)) for contrast in contrasts]


def planned_seeds(study: Study, contrast: Contrast) -> tuple[int, ...]:
    """Return the seeds that are planned for a contrast.

    One search decides nothing about arms that search. If the definition has one, each of the repeated searches has as
    many seeds as the definition.
    """
    searches, seeds = study.plan or (study.searches, study.seeds)
    if searches == 1 and any(arm.is_searched for arm in study.arms if arm.name in contrast.weights):
        searches, seeds = study.searches, seeds * study.searches
    return Repeats(searches).seeds(seeds)


def of_runs(
    contrast: Contrast, runs: Mapping[str, Runs], once: Collection[str], planned: Sequence[int]
) -> ContrastResult:
    """Return a contrast's result by the planned seeds of its arms' runs; ``once`` are arms that were searched once."""
    arms = {name: runs[name].of_seeds(planned) for name in contrast.weights}
    estimate = combined([(weight, arms[name]) for name, weight in contrast.weights.items()], contrast.metric)
    if lacking := ", ".join(name for name, of_arm in arms.items() if of_arm.without_ranks):
        again = f"ranks are missing in {lacking}: another run of the study trains those confirmations again"
        return ContrastResult(estimate, again, waits=True)
    tallies = {name: of_arm.confirmed for name, of_arm in arms.items()}
    return ContrastResult(estimate, *why_not(tallies, estimate, once, len(planned)))


def why_not(
    tallies: Mapping[str, Tally], estimate: Estimate | None, once: Collection[str], planned: int
) -> tuple[str, bool]:
    """Return why a contrast cannot be tested, empty if it can, and whether more data would change that.

    Args:
        tallies: How the confirmations of its arms ended, by the arm's name.
        estimate: Its estimate.
        once: The names of the arms that were searched once.
        planned: The number of planned seeds.
    """
    lost = ", ".join(name for name, tally in tallies.items() if tally.lost)
    unsearched = ", ".join(name for name in tallies if name in once)
    ended = 0 if estimate is None else estimate.n
    reasons = [
        (lost, f"seeds were lost in {lost}", False),
        (unsearched, f"only one search was made in {unsearched}, and no interval covers its luck", False),
        (ended < planned, f"{ended} of {planned} planned seeds have ended", True),
        (ended < _LEAST_SEEDS, f"fewer than {_LEAST_SEEDS} seeds", True),
        (
            estimate is not None and not estimate.has_spread,
            "all seeds are equal: no spread to judge by",
            False,
        ),
    ]
    return next(((why, waits) for holds, why, waits in reasons if holds), ("", False))


def decisions_of(study: Study, results: Sequence[ContrastResult]) -> tuple[Decision, ...]:
    """Return the verdicts on a study's claims; ``results`` are those of all contrasts, in the claims' order."""
    following = iter(results)
    return tuple(
        Decision(
            claim, tuple(_evidence(study, claim, contrast, next(following)) for contrast in claim.contrasts)
        )
        for claim in study.claims
    )


def _evidence(study: Study, claim: Claim, contrast: Contrast, result: ContrastResult) -> Evidence:
    estimate, planned = result.estimate, len(planned_seeds(study, contrast))
    if result.why or estimate is None or estimate.precision is None:
        verdict: Verdict = "waits for data" if result.waits else "undecided"
        return Evidence(contrast, estimate, verdict, why=result.why, planned=planned)
    scale = scale_of(contrast.metric)
    tested = _Tested(claim, scale * estimate.mean, estimate.precision.scaled(scale), estimate.n)
    effect = tested.effect(_printed(study, contrast))
    power, seeds = tested.power(effect), tested.seeds(effect)
    return Evidence(contrast, estimate, tested.verdict(), effect, power, seeds, "", planned)


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


@dataclass(frozen=True)
class _Tested:
    """One contrast's result with its claim, in points, and its number of seeds."""

    claim: Claim
    mean: float
    precision: Precision
    n: int

    def verdict(self) -> Verdict:
        if all(self._shown(gap, self._confirming) for gap in self._for(self.mean)):
            return "confirmed"
        level = 1 - (1 - _LEVEL) / len(self.claim.contrasts)
        return "refuted" if any(self._shown(gap, level) for gap in self._against()) else "undecided"

    @property
    def _confirming(self) -> float:
        return _EQUIVALENCE if self.claim.direction == "within" else _LEVEL

    def _shown(self, gap: float, level: float) -> bool:
        return gap > self.precision.error() * self.precision.critical(level)

    def _for(self, mean: float) -> Sequence[float]:
        """Return how far a mean is beyond each limit of the claim; to confirm, all must be shown to be positive."""
        claim = self.claim
        if claim.direction == "within":
            return claim.tolerance - mean, claim.tolerance + mean
        beyond = (mean - claim.bound) if claim.direction == "above" else (claim.bound - mean)
        return (beyond - claim.tolerance,)

    def _against(self) -> Sequence[float]:
        """Return how far the mean is on the other side of each limit; to refute, one is enough."""
        claim = self.claim
        if claim.direction == "within":
            return self.mean - claim.tolerance, -self.mean - claim.tolerance
        return (-self._for(self.mean)[0],)

    def effect(self, printed: float | None) -> float:
        """Return the true value for which power and seeds are given."""
        claim = self.claim
        if claim.direction == "within":
            return 0.0
        if printed is not None and self._for(printed)[0] > 0:
            return printed
        sign = 1 if claim.direction == "above" else -1
        return claim.bound + sign * (2 * claim.tolerance or self.precision.detectable(self._confirming))

    def power(self, effect: float) -> float:
        missed = sum(1 - self.precision.power(gap, level=self._confirming) for gap in self._for(effect))
        return max(0.0, 1 - missed)

    def seeds(self, effect: float) -> int | None:
        """Return how many seeds a study must plan; this depends on the variance, not on the mean."""
        gaps = self._for(effect)
        each = 1 - (1 - _POWER) / len(gaps)  # the tests of both limits of "within" must succeed
        rows = self.precision.rows_for(min(gaps), self._confirming, each)
        # A row is a seed, or a search with its seeds.
        return None if rows is None else max(_LEAST_SEEDS, math.ceil(rows * self.n / self.precision.rows))
