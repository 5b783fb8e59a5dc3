"""What results say about a contrast: its estimate, or why it cannot be tested."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from topk_platform.records import Tally
from topk_platform.results.cells import Cell
from topk_platform.results.confirmed_runs import Runs, runs_of_all
from topk_platform.results.contrasts import combined
from topk_platform.results.from_store import Held
from topk_platform.results.statistics import Estimate
from topk_platform.results.table import Table, row_and_column
from topk_platform.specs import Contrast, Study

__all__ = ["ContrastResult", "from_runs", "of_store", "of_table"]

_LEAST_SEEDS = 3


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


def of_store(held: Held) -> list[ContrastResult]:
    """Return the results of all contrasts of a study's claims, in the claims' order."""
    requested = {name for claim in held.study.claims for name in claim.arms}
    read_ranks = held.ranks if held.study.interval == "crossed" else None
    all_runs = runs_of_all(held.study, held.results)
    runs = {
        history.arm.name: all_runs[arm_id].with_ranks(read_ranks)
        for arm_id, history in held.histories.items()
        if history.arm.name in requested
    }
    once = _searched_once(held.study)
    return [from_runs(one, runs, once) for claim in held.study.claims for one in claim.contrasts]


def _searched_once(study: Study) -> frozenset[str]:
    return frozenset(arm.name for arm in study.arms if arm.is_searched and arm.repeats.count == 1)


def from_runs(contrast: Contrast, runs: Mapping[str, Runs], once: Collection[str] = ()) -> ContrastResult:
    """Return a contrast's result.

    Args:
        contrast: The contrast.
        runs: The arms' runs, by the arm's name.
        once: The names of arms that were searched once.
    """
    estimate = combined([(weight, runs[name]) for name, weight in contrast.weights.items()], contrast.metric)
    tallies = {name: runs[name].confirmed for name in contrast.weights}
    lacking = [name for name in contrast.weights if runs[name].without_ranks]
    return ContrastResult(estimate, *_why_not(tallies, estimate, lacking, once))


def _why_not(
    tallies: Mapping[str, Tally],
    estimate: Estimate | None,
    lacking: Sequence[str] = (),
    once: Collection[str] = (),
) -> tuple[str, bool]:
    """Return why a contrast cannot be tested, empty if it can, and whether more data would change that.

    Args:
        tallies: How the confirmations of its arms ended, by the arm's name.
        estimate: Its estimate.
        lacking: The arms that lack ranks of test images.
        once: The names of arms that were searched once.
    """
    few = estimate is None or estimate.n < _LEAST_SEEDS or estimate.precision is None
    level = estimate is not None and not estimate.has_spread
    reasons: list[tuple[object, str, bool]] = [
        ([n for n, of in tallies.items() if of.lost], "seeds were lost in {}", False),
        ([n for n, of in tallies.items() if not of.completed], "no seed has ended yet in {}", True),
        (lacking, "ranks are missing in {}: another run of the study trains those confirmations again", True),
        (few, f"fewer than {_LEAST_SEEDS} seeds", True),
        (
            [n for n in tallies if n in once],
            "only one search was made in {}, and no interval covers its luck",
            False,
        ),
        (estimate is not None and estimate.once, "no seeds of a second search have ended yet", True),
        (level, "all seeds are equal: there is no spread to judge by", False),
    ]
    for holds, why, waits in reasons:
        if holds:
            return why.format(", ".join(holds) if isinstance(holds, list) else ""), waits
    return "", False


def of_table(table: Table) -> list[ContrastResult]:
    """Return the results of all contrasts of a study's claims, as far as its table has them, in the claims' order.

    A table has the arms' own means, and the differences to the baseline in one regime, with all that a test needs.
    """
    return [_from_table(one, table) for claim in table.study.claims for one in claim.contrasts]


def _from_table(contrast: Contrast, table: Table) -> ContrastResult:
    arms = {arm.name: arm for arm in table.study.arms if arm.name in contrast.weights}
    cells = {
        name: table.cells.get((*row_and_column(table.study, table.across, arm), contrast.metric))
        for name, arm in arms.items()
    }
    name = _shown_by(contrast, table.study.baseline)
    if name is None:
        why = f"a table has only differences to {table.study.baseline}, and this needs the arms' runs"
        return ContrastResult(None, why, waits=True)
    own = cells[name] or Cell(None)
    estimate = own.value if len(arms) == 1 else own.difference
    if estimate is not None and contrast.weights[name] < 0:
        estimate = -estimate
    tallies = {arm: shown.confirmed if shown else Tally() for arm, shown in cells.items()}
    return ContrastResult(estimate, *_why_not(tallies, estimate, once=_searched_once(table.study)))


def _shown_by(contrast: Contrast, baseline: str | None) -> str | None:
    """Return the arm whose mean or difference to its regime's baseline is the contrast, but for its sign."""
    weights = sorted(contrast.weights.values())
    if weights == [1]:
        return next(iter(contrast.weights))
    ours = [name for name in contrast.weights if name.rpartition("/")[2] != baseline]
    columns = {name.rpartition("/")[0] for name in contrast.weights}
    return ours[0] if weights == [-1, 1] and len(ours) == len(columns) == 1 else None
