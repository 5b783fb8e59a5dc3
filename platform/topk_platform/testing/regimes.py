"""The contract of regimes: the properties that make their results comparable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Generator

from topk_platform.data import Dataset, Images, Population, Split, apply_conditions, load, read, shots
from topk_platform.specs import (
    Arm,
    Loss,
    Model,
    Recipe,
    Regime,
    Trial,
    TrialRecord,
)
from topk_platform.streams import stream_seed
from topk_platform.training import finish, run_trials

__all__ = ["RegimeContract"]


class RegimeContract:
    """Tests of a regime; subclass it in a test file and set ``regime``.

    Attributes:
        regime: The regime to test.
        model: A model that accepts the regime's inputs.

    Example:
        >>> class TestDigits(RegimeContract):
        ...     regime = Regime("balanced", "digits")
        >>> TestDigits().test_a_dataset_is_the_same_every_time()
    """

    regime: ClassVar[Regime]
    model: ClassVar[Model] = Model("mlp")

    def clean(self, seed: int) -> Dataset:
        """Return the dataset that a trial with this seed gets, before the regime's conditions."""
        return apply_conditions(load(self.regime), (), _streams(seed))

    def conditioned(self, seed: int) -> Dataset:
        """Return the dataset that a trial with this seed trains on, after the regime's conditions."""
        return apply_conditions(load(self.regime), self.regime.conditions, _streams(seed))

    def record(self, seed: int) -> TrialRecord:
        """Train one epoch with cross-entropy, and return the trial's record."""
        arm = Arm(self.regime, self.model, Loss("cross_entropy"), 1, Recipe(epochs=1))
        fingerprint = load(self.regime).fingerprint
        trial = Trial("contract", "arm", arm, (1,), "confirm", 0, seed, 0, {}, fingerprint, "code")
        return finish(run_trials([trial]))[0]

    def test_a_dataset_is_the_same_every_time(self) -> None:
        """Reading twice gives the same data, groups and fingerprint, which is part of every trial's key."""
        one, again = read(self.regime), read(self.regime)
        assert one.fingerprint == again.fingerprint
        drawn, redrawn = (apply_conditions(source, (), _streams(1)) for source in (one, again))
        assert drawn.fingerprint == redrawn.fingerprint
        for split, again_split in zip(drawn.splits.values(), redrawn.splits.values(), strict=True):
            assert _numbers(split) == _numbers(again_split)

    def test_seeds_share_a_dataset_unless_it_is_drawn(self) -> None:
        """From a population, every seed draws its own sample, with the same classes and shape."""
        one, other = self.clean(1), self.clean(2)
        assert (one.fingerprint != other.fingerprint) == isinstance(load(self.regime), Population)
        assert (one.classes, one.superclasses, one.shape) == (other.classes, other.superclasses, other.shape)

    def test_every_split_holds_every_class(self) -> None:
        """Otherwise macro averages of two splits would be over different classes."""
        data = self.clean(1)
        for split in (data.train, data.validation, data.test):
            assert len(torch.unique(split.labels)) == data.classes

    def test_class_counts_are_of_the_training_split(self) -> None:
        """Class counts determine margins, weights and the many-, medium- and few-shot classes."""
        data = self.conditioned(1)
        assert data.class_counts.tolist() == [
            int((data.train.labels == c).sum()) for c in range(data.classes)
        ]
        groups = torch.stack(list(shots(data.class_counts).values()))
        assert torch.equal(groups.sum(0), torch.ones(data.classes, dtype=torch.int64))

    def test_superclasses_partition_the_classes(self) -> None:
        """Superclasses are numbered from 0 without gaps, so that label noise can draw from each."""
        superclasses = load(self.regime).superclasses
        assert superclasses is None or set(superclasses) == set(range(max(superclasses) + 1))

    def test_no_sample_is_in_two_splits(self) -> None:
        """A test image that was also in the training split would measure memorisation."""
        data = self.clean(1)
        seen = [_samples(split) for split in (data.train, data.validation, data.test)]
        assert not seen[0] & seen[1]
        assert not seen[0] & seen[2]
        assert not seen[1] & seen[2]

    def test_conditions_touch_neither_validation_nor_test(self) -> None:
        """Conditions change only the training split."""
        before, after = self.clean(1), self.conditioned(1)
        for name in ("validation", "test"):
            assert torch.equal(getattr(before, name).labels, getattr(after, name).labels)
            assert _list(getattr(before, name)) == _list(getattr(after, name))

    def test_conditions_keep_what_is_trained_on(self) -> None:
        """Conditions remove samples and never add any; random and pair-flip noise stay within a superclass."""
        before, after = self.clean(1), self.conditioned(1)
        assert _samples(after.train) <= _samples(before.train)
        crosses = any(condition.across_superclasses for condition in self.regime.conditions)
        if before.superclasses is not None and not crosses and not _repeats(before.train):
            group = torch.tensor(before.superclasses)
            of = dict(zip(_list(before.train), group[before.train.labels].tolist(), strict=True))
            assert [of[x] for x in _list(after.train)] == group[after.train.labels].tolist()

    def test_conditions_are_drawn_once_per_seed(self) -> None:
        """The same seed gives the same training split, with at least one sample per class."""
        one, again = self.conditioned(1), self.conditioned(1)
        assert torch.equal(one.train.labels, again.train.labels)
        assert _list(one.train) == _list(again.train)
        assert bool((one.class_counts > 0).all())

    def test_a_trial_repeats_itself(self) -> None:
        """Training one epoch twice gives the same loss and metrics, bit for bit."""
        one, again = self.record(1), self.record(1)
        assert one.status == "completed", one.reason
        assert one.epochs[0].train_loss == again.epochs[0].train_loss
        assert dataclasses.asdict(one)["test"] == dataclasses.asdict(again)["test"]


def _streams(seed: int) -> Callable[[str], Generator]:
    return lambda role: Generator().manual_seed(stream_seed(0, seed, role))


def _list(split: Split) -> list[bytes]:
    """Return what identifies each sample: its bytes, or the name of its file."""
    if isinstance(split.inputs, Images):
        return split.inputs.names
    return [sample.contiguous().cpu().numpy().tobytes() for sample in split.inputs]


def _samples(split: Split) -> set[bytes]:
    return set(_list(split))


def _repeats(split: Split) -> bool:
    return len(_samples(split)) < len(split)


def _numbers(split: Split) -> list[int]:
    numbers: list[int] = [] if split.groups is None else split.groups.tolist()
    return numbers
