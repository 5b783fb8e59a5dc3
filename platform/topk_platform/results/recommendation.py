"""Which loss to start with for given data, by the paired differences in similar regimes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from topk_platform.results.comparisons import Compared, Situation
from topk_platform.results.replicates import Luck, Pooled, judged, luck_of, pooled

if TYPE_CHECKING:
    from rich.console import ConsoleRenderable

__all__ = ["LEAST_SEARCHES", "NEAR", "Recommendation", "recommended"]

NEAR = 10.0
"""Evidence counts up to this distance: the product of all ratios."""

LEAST_SEARCHES = 2
"""The least number of searches, of a loss and of its baseline, for a recommendation."""

_ALIKE = 1e-9


Verdict = Literal["better", "baseline", "unknown"]


@dataclass(frozen=True)
class Recommendation:
    """Which loss to start with, and on what evidence.

    Args:
        asked: The data that a loss is asked for.
        verdict: ``"better"``: a loss is shown to be ahead of the baseline. ``"baseline"``: every other loss is shown
            to be behind it. ``"unknown"``: neither, or nothing near was measured.
        loss: The loss to start with; empty where that is not known.
        chosen: The evidence for it, the nearest first.
        near: All near comparisons, the nearest first, each pooled over the studies that made it, with p-values
            corrected for all of them.
        promising: Losses that only lack a second search to be recommended; the first would be recommended first.
        nearest: The comparison in the nearest regime, whatever its distance; None if nothing was compared.
        left_out: The evidence that could not be used, with the reasons.
        luck: The luck of a search, by K, as near evidence shows it.
    """

    asked: Situation
    verdict: Verdict
    loss: str = ""
    chosen: tuple[Pooled, ...] = ()
    near: tuple[Pooled, ...] = ()
    promising: tuple[str, ...] = ()
    nearest: Pooled | None = None
    left_out: Mapping[str, str] | None = None
    luck: Mapping[int, Luck] = field(default_factory=dict)

    def __rich__(self) -> ConsoleRenderable:
        from topk_platform.reports.recommendation_text import recommendation_to_rich  # noqa: PLC0415 - imports this

        return recommendation_to_rich(self)

    def _repr_markdown_(self) -> str:
        from topk_platform.reports.recommendation_text import recommendation_to_markdown  # noqa: PLC0415 - as above

        return recommendation_to_markdown(self)


def recommended(
    asked: Situation, comparisons: Iterable[Compared], left_out: Mapping[str, str] | None = None
) -> Recommendation:
    """Return which loss to start with, by these rules.

    - Evidence is near where :meth:`Situation.apart` is at most 10: all ratios of classes, images per class, imbalance,
      noise and K, multiplied. Evidence that is further away decides nothing.
    - Equal comparisons of several studies are pooled. The intervals contain the luck of the search. Where the arms were
      searched once, it is estimated from near comparisons that were searched more than once, or from all such.
    - The differences of all near comparisons, from all studies, are corrected together by Holm's method.
    - A loss is recommended if it is better than the baseline in its nearest regime, with every network it was tried
      with there, and worse in no near regime. Both must have been searched twice or more there: losses that were
      searched once share the luck of their baseline's only search. If there are several such losses, the one with the
      nearest evidence is recommended, then the one with the largest difference; they were not tested against one
      another.
    - The baseline is recommended if every other loss is worse in its nearest regime.
    - Otherwise no loss is recommended, and the verdict is ``"unknown"``.

    Args:
        asked: The data that a loss is asked for.
        comparisons: Comparisons in any regime, of arms that were searched. Those by a metric other than top-K at a
            situation's own K only show the luck of the search.
        left_out: The evidence that could not be used, with the reasons.

    Example:
        >>> recommended(Situation(100, 50_000), []).verdict
        'unknown'
    """
    comparisons = list(comparisons)
    luck = luck_of(one for one in comparisons if asked.apart(one.situation) <= NEAR) or luck_of(comparisons)
    together = pooled((one for one in comparisons if one.counts), luck)
    parts = [replace(one, apart=asked.apart(one.first.situation)) for one in together]
    parts.sort(key=lambda one: (one.apart, one.name))
    near = judged([one for one in parts if one.apart <= NEAR])
    by_loss = _by_loss(near)
    verdict, loss = _verdict(near, by_loss)
    chosen = tuple(one for one in near if one.loss == loss or (verdict == "baseline" and one.mark))
    nearest = next(iter(near or parts), None)
    promising = [name for name, of_it in by_loss.items() if _is_ahead(of_it) and not _is_repeated(of_it)]
    promising.sort(key=lambda name: _order(by_loss[name]))
    return Recommendation(
        asked, verdict, loss, chosen, tuple(near), tuple(promising), nearest, dict(left_out or {}), luck
    )


def _by_loss(near: Sequence[Pooled]) -> dict[str, list[Pooled]]:
    by_loss: dict[str, list[Pooled]] = {}
    for one in near:
        by_loss.setdefault(one.loss, []).append(one)
    return by_loss


def _verdict(near: Sequence[Pooled], by_loss: Mapping[str, Sequence[Pooled]]) -> tuple[Verdict, str]:
    ahead = {loss: result for loss, result in by_loss.items() if _is_ahead(result) and _is_repeated(result)}
    if ahead:
        return "better", min(ahead, key=lambda loss: _order(ahead[loss]))
    baselines = {one.first.baseline for one in near}
    behind = all(one.mark == "worse" for result in by_loss.values() for one in _nearest(result))
    return ("baseline", baselines.pop()) if len(baselines) == 1 and behind else ("unknown", "")


def _nearest(comparisons: Sequence[Pooled]) -> list[Pooled]:
    """Return a loss's comparisons in its nearest regime, or in several that are equally near."""
    return [one for one in comparisons if one.apart <= comparisons[0].apart * (1 + _ALIKE)]


def _is_ahead(comparisons: Sequence[Pooled]) -> bool:
    better = all(one.mark == "better" for one in _nearest(comparisons))
    return better and not any(one.mark == "worse" for one in comparisons)


def _is_repeated(comparisons: Sequence[Pooled]) -> bool:
    return all(one.searches >= LEAST_SEARCHES for one in _nearest(comparisons))


def _order(comparisons: Sequence[Pooled]) -> tuple[float, float]:
    """Return the key that orders losses: the nearest evidence first, then the largest difference."""
    return comparisons[0].apart, -max(one.ahead.mean for one in _nearest(comparisons))
