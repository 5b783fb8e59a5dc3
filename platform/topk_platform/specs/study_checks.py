"""What a study's definition leaves out, and checks that concern several of its arms, its metrics, or its budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from topk_platform.errors import UserError
from topk_platform.references import is_reference
from topk_platform.specs.arm import Arm
from topk_platform.specs.checks import check, check_name
from topk_platform.specs.metric_names import accuracy_k, candidate_names, measure_of, measures_among
from topk_platform.specs.search_rules import OptunaSampler

if TYPE_CHECKING:
    from topk_platform.specs.study import Study

__all__ = ["check_study", "complete"]

_BASELINE = "cross_entropy"


def complete(study: Study) -> None:
    """Complete a study that is being made: the searches of all arms, the baseline, the metrics shown and measured.

    Raises:
        UserError: if its name is unsafe, it has no arm or no k, its arms are not searched equally often, the baseline
            is no arm's loss, or a metric cannot be measured or cannot select.
    """
    subject = f"study {study.name}:"
    check_name("study name", study.name)
    check(bool(study.arms), f"{subject} arms must hold at least one arm")
    check(bool(study.topk), f"{subject} topk must hold at least one k, got {study.topk!r}")
    object.__setattr__(study, "topk", tuple(sorted(set(study.topk))))
    object.__setattr__(study, "arms", _labelled_by_k(_with_equal_searches(study)))
    labels = list(dict.fromkeys(arm.loss.label for arm in study.arms))
    if study.baseline is None and _BASELINE in labels:
        object.__setattr__(study, "baseline", _BASELINE)
    check(
        study.baseline is None or study.baseline in labels,
        f"{subject} baseline must be the label of one of its losses, {labels}, got {study.baseline!r}",
    )
    _complete_metrics(study)


def _complete_metrics(study: Study) -> None:
    """Show each arm's selection metric and ``top1`` by default, and measure what is shown, kept or selects."""
    for metric in study.measures:
        check(
            measure_of(metric) is not None or is_reference(metric),
            f"study {study.name}: measures must be names such as 'autkc5', 'average5' or 'size95' (90, 95, 99), 'ece', "
            f"'nll' or 'brier', or functions of your own, got {metric!r}",
        )
    selected = dict.fromkeys(arm.metric for arm in study.arms)
    selecting = (*selected, *dict.fromkeys(metric for arm in study.arms for metric in arm.recipe.keep))
    shown = tuple(dict.fromkeys(study.show or (*selected, *study.accuracies[:1])))
    object.__setattr__(study, "show", shown)
    object.__setattr__(study, "measures", measures_among((*study.measures, *selecting, *shown)))
    for metric in (*selecting, *shown):
        if metric not in study.tabled:
            raise _not_measured(study, metric)
    for metric in selecting:
        why = "it is measured on the test split" if is_reference(metric) else "smaller values are better"
        check(
            metric in study.selecting,
            f"study {study.name}: metric {metric!r} cannot select, because {why}: show it, and "
            f"select by one of {list(study.selecting)}",
        )


def check_study(study: Study) -> None:
    """Raise ``UserError`` if arms, metrics, budget, published numbers or claims of a study do not fit together."""
    subject, names = f"study {study.name}:", [arm.name for arm in study.arms]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    check(not twice, f"{subject} two arms are called {twice}; give one of them a label")
    check(
        len(set(candidate_names(study.targets))) == len(study.targets),
        f"{subject} targets must differ in the six digits of their metrics, got {study.targets}",
    )
    check(
        study.device == "cuda" or not study.accelerator,
        f"{subject} accelerator must be left out where trials run on the CPU, got {study.accelerator!r}",
    )
    for budget, number in (("trials", study.trials), ("seeds", study.seeds)):
        check(
            number % study.searches == 0,
            f"{subject} {budget} must be a multiple of the {study.searches} searches of its arms, which share them, "
            f"got {number}",
        )
    _check_parameters(study)
    _check_published(study)
    _check_claims(study, names)


def _check_parameters(study: Study) -> None:
    """Refuse parameters that are called ``type``: in records, this name says of which class an object is."""
    for arm in study.arms:
        sampler = arm.protocol.sampler
        names = {*arm.regime.options, *arm.model.options, *arm.loss.space, *arm.loss.fixed}
        names |= sampler.options.keys() if isinstance(sampler, OptunaSampler) else set()
        check(
            "type" not in names,
            f"study {study.name}: parameters of a dataset, a model, a loss and a sampler must not be called 'type', "
            f"which records need, got {sorted(names)} in arm {arm.name}: wrap it in a function with another parameter",
        )


def _check_published(study: Study) -> None:
    """Refuse numbers that do not belong to one arm and a metric that can select, and two for the same pair."""
    subject, seen = f"study {study.name}:", set()
    for number in study.published:
        names = [arm.name for arm in study.arms if number.names(arm)]
        rule = f"several arms, {names}; name its model" if names else "no arm"
        check(len(names) == 1, f"{subject} the published number of {number.arm_name} belongs to {rule}")
        check(
            number.metric in study.selecting,
            f"{subject} metric {number.metric!r} of a published number is not among {list(study.selecting)}",
        )
        key = (names[0], number.metric)
        check(key not in seen, f"{subject} two published numbers belong to {key[0]} and {key[1]}")
        seen.add(key)


def _check_claims(study: Study, names: Collection[str]) -> None:
    subject, seen = f"study {study.name}:", set()
    for claim in study.claims:
        check(claim.name not in seen, f"{subject} two claims are called {claim.name}")
        seen.add(claim.name)
        for name in claim.arms:
            check(
                name in names,
                f"{subject} claim {claim.name} names {name!r}, which is not an arm of the study",
            )
        for contrast in claim.contrasts:
            check(
                contrast.metric in (*study.metrics, *study.tabled),
                f"{subject} claim {claim.name} names metric {contrast.metric!r}, which is not among "
                f"{list(study.metrics)}",
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


def _labelled_by_k(arms: Sequence[Arm]) -> tuple[Arm, ...]:
    """Return arms of which those that differ from an earlier one in K alone have it in their loss's label."""
    known: dict[str, Arm] = {}
    result = []
    for arm in arms:
        first = known.setdefault(arm.name, arm)
        same = replace(arm, k=first.k, metric=first.metric) == first and arm.k != first.k
        loss = replace(arm.loss, label=f"{arm.loss.label}-k{arm.k}") if same else arm.loss
        result.append(replace(arm, loss=loss))
    return tuple(result)


def _with_equal_searches(study: Study) -> tuple[Arm, ...]:
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
