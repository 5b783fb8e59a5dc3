"""Training splits after a regime's conditions, drawn with the random streams of a study's own trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Generator, Tensor

from topk_platform.data import Dataset, apply_conditions, load, shot_words, shots
from topk_platform.errors import UserError
from topk_platform.specs import Arm, Regime, Study
from topk_platform.specs.checks import first_few
from topk_platform.specs.metric_names import GROUPS, accuracy_k
from topk_platform.streams import stream_seed

__all__ = ["check_group_metrics", "fewest_counts", "notes_on_data", "streams", "trained_on"]


def streams(study: Study, seed: int = 0) -> Callable[[str], Generator]:
    """Return a function from a role to its random stream, in trials of a seed.

    Args:
        study: The study, whose name and root seed decide the streams.
        seed: 0 for the search, 1, 2, ... for confirmations.
    """
    return lambda role: Generator().manual_seed(stream_seed(study.name, study.seed, seed, role))


def trained_on(study: Study, regime: Regime, seed: int = 0, *, conditions: bool = True) -> Dataset:
    """Return the data that trials of a seed train on, on the CPU.

    Args:
        study: The study, whose name and root seed decide what is drawn.
        regime: One of its regimes.
        seed: 0 for the search, 1, 2, ... for confirmations.
        conditions: Whether to apply the regime's conditions.

    Raises:
        UserError: if the data cannot be read, or a condition cannot be applied.
    """
    return apply_conditions(load(regime), regime.conditions if conditions else (), streams(study, seed))


def fewest_counts(study: Study, regime: Regime) -> Tensor:
    """Return the fewest training samples that each class has in any seed of a study, int64 ``(classes,)``."""
    counts = [trained_on(study, regime, seed).class_counts for seed in range(study.seeds + 1)]
    return torch.stack(counts).amin(0)


def check_group_metrics(study: Study, arm: Arm) -> None:
    """Raise ``UserError`` if an arm selects by the accuracy of a group of classes that is empty in some seed."""
    metrics = [
        name
        for name in dict.fromkeys((*arm.objectives, *arm.recipe.keep))
        if name.partition("_")[0] in GROUPS
    ]
    for seed in range(study.seeds + 1) if metrics else ():
        data = trained_on(study, arm.regime, seed)
        groups = shots(data.class_counts)
        several = sum(bool(mask.any()) for mask in groups.values()) > 1
        validated = torch.bincount(data.validation.labels, minlength=data.classes) > 0
        for metric in metrics:
            if not several or not (groups[metric.partition("_")[0]] & validated).any():
                raise _empty_group(arm, metric, data, seed)


def _empty_group(arm: Arm, metric: str, data: Dataset, seed: int) -> UserError:
    counts = data.class_counts
    return UserError(
        f"arm {arm.name}: metric {metric} needs classes of that group in the training and the validation split, and "
        f"classes of another group; the {data.classes} classes have {int(counts.min())} to {int(counts.max())} "
        f"training samples with seed {seed}: {shot_words(counts)}. Take macro_top{accuracy_k(metric)}, the mean over "
        "all classes"
    )


def notes_on_data(study: Study) -> tuple[str, ...]:
    """Return a line for each problem of the data that does not stop a study: a split lacks some classes.

    Args:
        study: The study, whose data are read unless this process has read them.
    """
    alike: dict[str, list[str]] = {}
    for regime in {arm.regime.name: arm.regime for arm in study.arms}.values():
        for text in _notes(study, regime):
            alike.setdefault(text, []).append(regime.name)
    return tuple(f"{', '.join(regimes)}: {text}" for text, regimes in alike.items())


def _notes(study: Study, regime: Regime) -> Iterator[str]:
    data = trained_on(study, regime)
    before = (
        trained_on(study, regime, conditions=False).class_counts if regime.conditions else data.class_counts
    )
    if emptied := _named(data, (data.class_counts == 0) & (before > 0)):
        yield (
            f"label noise leaves {emptied}, as drawn for the search. Such classes cannot be "
            "learned, and losses that take class counts take 1 for them. Less noise or more samples of each class "
            "avoid it"
        )
    if absent := _named(data, before == 0):
        yield f"the data leave {absent}. Such classes cannot be learned"
    for name, split in (("validation", data.validation), ("test", data.test)):
        if absent := _named(data, torch.bincount(split.labels, minlength=data.classes) == 0, name):
            yield f"the data leave {absent}. Its macro metrics are means over the other classes"


def _named(data: Dataset, lacking: Tensor, split: str = "training") -> str:
    numbers = lacking.nonzero()[:, 0].tolist()
    if not numbers:
        return ""
    names = data.class_names or range(data.classes)
    return (
        f"{len(numbers)} of {data.classes} classes without a {split} sample: "
        f"{first_few([str(names[number]) for number in numbers])}"
    )
