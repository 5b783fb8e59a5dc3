"""Training splits after a regime's conditions, drawn as trials draw them, and their numbers of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Generator, Tensor

from topk_platform.data import Dataset, apply_conditions, load, shot_words, shots
from topk_platform.data.conditions import conditioned
from topk_platform.errors import UserError
from topk_platform.records.run_notes import DataNote, Samples
from topk_platform.references import is_reference
from topk_platform.specs import Arm, Regime, Repeats, Study, TrainFraction
from topk_platform.specs.checks import first_few
from topk_platform.specs.codec import stream_seed
from topk_platform.specs.metric_names import GROUPS, accuracy_k

__all__ = ["Draws", "data_notes", "trained_on"]

_UNLEARNED = (
    "Such classes, as drawn for the first search, cannot be learned, and losses that take class counts take 1 for "
    "them. Less label noise or more samples of each class avoid it"
)


def _streams(study: Study, seed: int = 0) -> Callable[[str], Generator]:
    """Return a function from a role to its random stream, in trials of a seed."""
    return lambda role: Generator().manual_seed(stream_seed(study.seed, seed, role))


def trained_on(study: Study, regime: Regime, seed: int = 0) -> Dataset:
    """Return the data that trials of a seed train on, on the CPU.

    Args:
        study: The study, whose root seed decides what is drawn.
        regime: One of its regimes.
        seed: 0 for the first search; see :class:`~topk_platform.specs.Repeats`.

    Raises:
        UserError: if the data cannot be read, or a condition cannot be applied.
    """
    return apply_conditions(load(regime), regime.conditions, _streams(study, seed))


class Draws:
    """The training and validation splits of a study's seeds, in numbers; each regime is drawn once with each seed.

    All seeds are drawn if an arm depends on them, or if they may fail although the first search's draw does not.
    """

    def __init__(self, study: Study) -> None:
        repeats = Repeats(study.searches)
        self._study, self._seeds = study, (*repeats.search_seeds, *repeats.seeds(study.seeds))
        self._drawn: dict[str, list[Tensor]] = {}

    def class_counts(self, arm: Arm) -> Tensor:
        """Return the counts with which the first search's loss is built; for a user's loss, the fewest over all seeds.

        Raises:
            UserError: if groups cannot be kept whole.
        """
        own = is_reference(arm.loss.name)
        # Chance decides whether groups can be kept whole; other draws would only cost time.
        by_groups = any(isinstance(c, TrainFraction) and c.whole_groups for c in arm.regime.conditions)
        counts = [training for training, _ in self._of(arm, every=own or by_groups)]
        return torch.stack(counts).amin(0) if own else counts[0]

    def check_group_metrics(self, arm: Arm) -> None:
        """Raise ``UserError`` if an arm selects by the accuracy of a group of classes that is empty in some seed."""
        used = dict.fromkeys((arm.metric, *arm.recipe.keep))
        metrics = [name for name in used if name.partition("_")[0] in GROUPS]
        if not metrics:
            return
        for seed, (training, validation) in zip(self._seeds, self._of(arm, every=True), strict=True):
            groups = shots(training)
            several = sum(bool(mask.any()) for mask in groups.values()) > 1
            for metric in metrics:
                if not several or not (groups[metric.partition("_")[0]] & (validation > 0)).any():
                    raise UserError(
                        f"arm {arm.name}: metric {metric} needs classes of that group in the training and the "
                        f"validation split, and classes of another group; the {len(training)} classes have "
                        f"{int(training.min())} to {int(training.max())} training samples with seed {seed}: "
                        f"{shot_words(training)}. Take macro_top{accuracy_k(metric)}, the mean over all classes"
                    )

    def _of(self, arm: Arm, *, every: bool) -> Sequence[Tensor]:
        """Return each class's numbers of training and validation samples, int64 ``(2, classes)``, of an arm's regime.

        They are those of all searches and confirmations, or at least of the first search.
        """
        drawn = self._drawn.setdefault(arm.regime.name, [])
        for seed in self._seeds[len(drawn) : None if every else 1]:
            try:
                data = trained_on(self._study, arm.regime, seed)
            except UserError as error:
                which = f"with seed {seed}: " if seed else ""
                raise UserError(f"arm {arm.name}: {which}{error}") from error
            splits = (data.train, data.validation)
            drawn.append(torch.stack([torch.bincount(s.labels, minlength=data.classes) for s in splits]))
        return drawn


def data_notes(study: Study) -> dict[str, DataNote]:
    """Return what a user should know of the data of each regime of a study, by the regime's name, in its order.

    If data are drawn, or label noise moves samples between classes, the numbers are those of the first search.

    Args:
        study: The study, whose data are read unless this process has read them.

    Example:
        >>> from topk_studies import letters_quick
        >>> data = next(iter(data_notes(letters_quick()).values())).samples
        >>> data.train, data.validation, data.test, data.groups
        (2368, 3100, 9920, '160 typefaces')
    """
    regimes = {arm.regime.name: arm.regime for arm in study.arms}
    return {name: _note(study, regime) for name, regime in regimes.items()}


def _note(study: Study, regime: Regime) -> DataNote:
    data, wrong = conditioned(load(regime), regime.conditions, _streams(study))
    groups = data.test.groups
    samples = Samples(
        regime.name,
        len(data.train),
        len(data.validation),
        len(data.test),
        data.classes,
        fewest=int(data.class_counts.min()),
        most=int(data.class_counts.max()),
        groups="" if groups is None else f"{len(set(groups.tolist()))} {data.groups}",
        shots=shot_words(data.class_counts),
        wrong=wrong,
    )
    return DataNote(samples, data.class_names, (*data.notes, *_lacking_classes(data)))


def _lacking_classes(data: Dataset) -> Iterator[str]:
    """Yield a sentence for each split that lacks classes, which does not stop a study."""
    names = data.class_names or range(data.classes)
    partly = "Its macro metrics are means over the other classes"
    for name, split, so in (
        ("training", data.train, _UNLEARNED),
        ("validation", data.validation, partly),
        ("test", data.test, partly),
    ):
        lacking = (torch.bincount(split.labels, minlength=data.classes) == 0).nonzero()[:, 0].tolist()
        if lacking:
            few = first_few([str(names[number]) for number in lacking])
            yield f"the {name} split lacks {len(lacking)} of {data.classes} classes: {few}. {so}"
