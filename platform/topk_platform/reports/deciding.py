"""Claims decided by a store's results: confirmed, refuted or undecided, with the test's power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from topk_platform.records import last_seeds
from topk_platform.reports.contrasts import combined
from topk_platform.reports.reading import Held, read
from topk_platform.reports.runs import Runs, runs_of_all
from topk_platform.reports.statistics import Estimate, Precision
from topk_platform.specs import Claim, Contrast, Study, scale_of

__all__ = ["Decision", "Evidence", "Verdict", "decide", "decided"]

Verdict = Literal["confirmed", "refuted", "undecided", "waits for data"]

_LEVEL = 0.975  # one-sided, as a 95 % interval's end
_EQUIVALENCE = 0.95  # of either of the two one-sided tests
_LEAST_SEEDS = 3


@dataclass(frozen=True)
class Evidence:
    """The evidence on one contrast of a claim.

    Args:
        contrast: The contrast.
        estimate: Of the contrast, in fractions of 1 where it is of accuracies; None without data.
        verdict: The verdict on this contrast.
        effect: The size for which ``power`` is given, in points: what the paper printed where that is beyond the
            claim's bound, or else the tolerance; None where there is neither.
        power: The chance of confirming the claim with these seeds and images if ``effect`` were the truth.
        seeds: How many seeds would decide with a chance of 80 % if the measured value were the truth; None if more
            than 10,000, because of too few test images, or if nothing was measured.
        why: Why it waits or cannot be decided, if not for lack of precision.
    """

    contrast: Contrast
    estimate: Estimate | None
    verdict: Verdict
    effect: float | None = None
    power: float | None = None
    seeds: int | None = None
    why: str = ""


@dataclass(frozen=True)
class Decision:
    """A claim with its verdict: refuted if one of its contrasts is, confirmed if all are.

    Args:
        claim: The claim.
        evidence: Of each contrast, in its order.
    """

    claim: Claim
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> Verdict:
        """What came of it."""
        verdicts = {found.verdict for found in self.evidence}
        if len(verdicts) == 1:
            return verdicts.pop()
        order: tuple[Verdict, ...] = ("refuted", "waits for data", "undecided")
        return next(verdict for verdict in order if verdict in verdicts)


def decide(
    study: Study, *, store: str | Path = "runs", trials: int | None = None, seeds: int | None = None
) -> tuple[Decision, ...]:
    """Return the verdicts of a store's results on a study's claims.

    A contrast is confirmed where its 95 % interval lies on the claimed side of the bound (of ``"within"``: its 90 %
    interval between the tolerances, which is two one-sided tests at 0.05), and refuted where the interval lies on the
    other side. A claim needs all its contrasts, so that each is tested at the full level to confirm it; to refute it
    one is enough, so that the level is divided by their number. Claims are not corrected for one another: each is a
    question of its own.

    Args:
        study: The study, with its claims.
        store: Folder or URI of the results.
        trials: Search trials per arm to select among, instead of the study's.
        seeds: Confirmation seeds per arm, instead of the study's.

    Raises:
        UserError: if the store holds something else.
    """
    return decided(read(study, store, trials, seeds))


def decided(held: Held) -> tuple[Decision, ...]:
    """Return these results' verdicts on their study's claims, see :func:`decide`."""
    runs = _runs(held)
    return tuple(
        Decision(
            claim,
            tuple(
                _evidence(claim, contrast, runs, _printed(held.study, contrast))
                for contrast in claim.contrasts
            ),
        )
        for claim in held.study.claims
    )


def _runs(held: Held) -> dict[str, Runs]:
    wanted = {name for claim in held.study.claims for name in claim.arms}
    last = last_seeds(held.study, held.histories)
    read_ranks = held.ranks if held.study.interval == "crossed" else None
    runs = runs_of_all(held.study, held.histories, last)
    return {
        history.arm.name: runs[arm_id].with_ranks(read_ranks)
        for arm_id, history in held.histories.items()
        if history.arm.name in wanted
    }


def _printed(study: Study, contrast: Contrast) -> float | None:
    """Return a contrast's value by a paper's numbers, in points, if it printed them all."""
    arms = {arm.name: arm for arm in study.arms}
    total = 0.0
    for name, weight in contrast.weights.items():
        number = study.published_of(arms[name], contrast.metric)
        if number is None:
            return None
        total += weight * number.value
    return total


def _evidence(claim: Claim, contrast: Contrast, runs: Mapping[str, Runs], printed: float | None) -> Evidence:
    parts = [(weight, runs[name]) for name, weight in contrast.weights.items()]
    estimate = combined(parts, contrast.metric)
    lacking = [name for name in contrast.weights if not runs[name].confirmed.completed]
    lost = [name for name in contrast.weights if runs[name].confirmed.lost]
    if lost:
        return Evidence(contrast, estimate, "undecided", why=f"seeds were lost of {', '.join(lost)}")
    if lacking:
        return Evidence(contrast, estimate, "waits for data", why=f"no seed yet of {', '.join(lacking)}")
    if estimate is None or estimate.n < _LEAST_SEEDS or estimate.precision is None:
        return Evidence(contrast, estimate, "waits for data", why=f"fewer than {_LEAST_SEEDS} seeds")
    if estimate.half_width == 0:
        return Evidence(
            contrast, estimate, "undecided", why="all seeds are equal: there is no spread to judge by"
        )
    scale = scale_of(contrast.metric)
    judged = _Judged(claim, scale * estimate.mean, estimate.precision.scaled(scale))
    effect = judged.effect(printed)
    return Evidence(
        contrast,
        estimate,
        judged.verdict(),
        effect,
        None if effect is None else judged.power(effect),
        judged.seeds(max(1, *(part.searches for _, part in parts)), estimate.n),
    )


@dataclass(frozen=True)
class _Judged:
    """One contrast beside its claim, in points."""

    claim: Claim
    mean: float
    precision: Precision

    def verdict(self) -> Verdict:
        if all(self._shown(gap, self._confirming) for gap in self._for()):
            return "confirmed"
        level = 1 - (1 - _LEVEL) / len(self.claim.contrasts)
        return "refuted" if any(self._shown(gap, level) for gap in self._against()) else "undecided"

    @property
    def _confirming(self) -> float:
        return _EQUIVALENCE if self.claim.direction == "within" else _LEVEL

    def _shown(self, gap: float, level: float) -> bool:
        return gap > self.precision.error() * self.precision.critical(level)

    def _for(self, mean: float | None = None) -> Sequence[float]:
        """Return how far a mean lies on the claimed side of each limit; all have to be shown."""
        mean, claim = self.mean if mean is None else mean, self.claim
        if claim.direction == "within":
            return claim.tolerance - mean, claim.tolerance + mean
        return ((mean - claim.bound) if claim.direction == "above" else (claim.bound - mean),)

    def _against(self) -> Sequence[float]:
        """Return how far the mean lies on the other side of each limit; one is enough."""
        claim = self.claim
        if claim.direction == "within":
            return self.mean - claim.tolerance, -self.mean - claim.tolerance
        return (claim.tolerance - self._for()[0],)

    def effect(self, printed: float | None) -> float | None:
        """Return the truth for which the power is told."""
        claim = self.claim
        if claim.direction == "within":
            return 0.0
        if printed is not None and self._for(printed)[0] > 0:
            return printed
        sign = 1 if claim.direction == "above" else -1
        return claim.bound + sign * claim.tolerance if claim.tolerance else None

    def power(self, effect: float) -> float:
        gaps = self._for(effect)
        missed = sum(1 - self.precision.power(gap, level=self._confirming) for gap in gaps)
        return max(0.0, 1 - missed)

    def seeds(self, searches: int, n: int) -> int | None:
        """Return how many seeds decide, one way or the other, if the mean stays what it is."""
        level = 1 - (1 - _LEVEL) / len(self.claim.contrasts)
        ways = [(min(self._for()), self._confirming), (max(self._against()), level)]
        rows = [self.precision.rows_for(gap, at) for gap, at in ways if gap > 0]
        known = [row for row in rows if row is not None]
        if not known:
            return None
        return min(known) if searches == 1 else min(known) * max(n // searches, 1)
