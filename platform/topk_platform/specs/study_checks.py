"""Checks of a study that concern several of its arms, its metrics, or its budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.specs.arm import Arm
from topk_platform.specs.checks import check
from topk_platform.specs.metric_names import accuracy_k, measure_of
from topk_platform.specs.search_rules import OptunaSampler

if TYPE_CHECKING:
    from topk_platform.specs.study import Study

__all__ = ["check_measures", "check_metrics", "check_parameters", "with_equal_searches"]


def check_measures(study: str, measures: Iterable[str]) -> None:
    """Raise ``UserError`` if a name is not that of a measure."""
    for metric in measures:
        check(
            measure_of(metric) is not None,
            f"study {study}: measures must be names such as 'autkc5', 'average5' or 'size95' (90, 95, 99), or 'ece', "
            f"'nll' or 'brier', got {metric!r}",
        )


def check_metrics(study: Study, shown: Iterable[str], selecting: Sequence[str]) -> None:
    """Raise ``UserError`` unless all metrics that are shown or select are measured, and the latter can select.

    Args:
        study: The study, with its measures.
        shown: The metrics in tables.
        selecting: The metrics that select a configuration or the weights to keep.
    """
    for metric in (*selecting, *shown):
        if metric not in study.tabled:
            raise _not_measured(study, metric)
    for metric in selecting:
        check(
            metric in study.selecting,
            f"study {study.name}: metric {metric!r} cannot select, because smaller values are better: show it, and "
            f"select by one of {list(study.selecting)}",
        )


def check_parameters(study: Study) -> None:
    """Raise ``UserError`` if a parameter is called ``type``: in records, this name says of which class an object is."""
    for arm in study.arms:
        sampler = arm.protocol.sampler
        names = {*arm.regime.options, *arm.model.options, *arm.loss.space, *arm.loss.fixed}
        names |= sampler.options.keys() if isinstance(sampler, OptunaSampler) else set()
        check(
            "type" not in names,
            f"study {study.name}: parameters of a dataset, a model, a loss and a sampler must not be called 'type', "
            f"which records need, got {sorted(names)} in arm {arm.name}: wrap it in a function with another parameter",
        )


def _not_measured(study: Study, metric: str) -> UserError:
    k = accuracy_k(metric)
    if k is None:
        return UserError(f"study {study.name}: metric {metric!r} is not among {list(study.tabled)}")
    arm = next((arm.name for arm in study.arms if metric == arm.metric == f"top{arm.k}"), "")
    why = f"which is the k of arm {arm}" if arm else f"for metric {metric!r}"
    return UserError(
        f"study {study.name}: topk must contain {k}, {why}, got {study.topk}: "
        f"take topk={tuple(sorted({*study.topk, k}))}"
    )


def with_equal_searches(study: Study) -> tuple[Arm, ...]:
    """Return a study's arms. Arms that search nothing get the other arms' number of searches, and so their seeds.

    Raises:
        UserError: if the arms that search are not searched equally often: their seeds would not make pairs.
    """
    searching = [arm for arm in study.arms if arm.is_searched]
    times = {arm.protocol.searches: arm.name for arm in searching or study.arms}
    counts = ", ".join(f"searches={count} in {name}" for count, name in times.items())
    check(
        len(times) == 1,
        f"study {study.name}: all arms must be searched equally often, or their seeds make no pairs, got {counts}",
    )
    return tuple(arm.searched(next(iter(times))) for arm in study.arms)
