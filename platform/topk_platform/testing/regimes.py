"""What every regime has to keep for its numbers to be comparable."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import torch
from torch import Generator

from topk_platform.data import Dataset, Split, apply_conditions, load, read
from topk_platform.specs import Arm, Loss, Model, Recipe, Regime, Trial, TrialRecord
from topk_platform.streams import stream_seed
from topk_platform.training import finish, run_trials

__all__ = ["RegimeContract"]


class RegimeContract:
    """Tests of a regime; subclass it in a test file and set ``regime``.

    Attributes:
        regime: What is tested.
        model: A model that takes its inputs.

    Example:
        >>> class TestDigits(RegimeContract):
        ...     regime = Regime("balanced", "digits")
        >>> TestDigits().test_a_dataset_is_the_same_every_time()
    """

    regime: ClassVar[Regime]
    model: ClassVar[Model] = Model("mlp")

    def conditioned(self, seed: int) -> Dataset:
        """Return the regime's dataset under its conditions, as a trial with this seed sees it."""
        return apply_conditions(
            load(self.regime),
            self.regime.conditions,
            lambda role: Generator().manual_seed(stream_seed("contract", 0, seed, role)),
        )

    def record(self, seed: int) -> TrialRecord:
        """Return the record of one epoch of cross-entropy."""
        arm = Arm(self.regime, self.model, Loss("cross_entropy"), 1, Recipe(epochs=1))
        fingerprint = load(self.regime).fingerprint
        trial = Trial("contract", "arm", arm, (1,), "confirm", 0, seed, 0, {}, fingerprint, "code")
        return finish(run_trials([trial]))[0]

    def test_a_dataset_is_the_same_every_time(self) -> None:
        """Two readings agree in every byte: the fingerprint is part of every trial's key."""
        assert read(self.regime).fingerprint == read(self.regime).fingerprint

    def test_every_split_holds_every_class(self) -> None:
        """Else macro averages of two splits are over different classes."""
        data = load(self.regime)
        for split in (data.train, data.validation, data.test):
            assert len(torch.unique(split.labels)) == data.classes

    def test_no_sample_is_in_two_splits(self) -> None:
        """An image of the training split in the test split would be remembered, not recognised."""
        data = load(self.regime)
        seen = [_samples(split) for split in (data.train, data.validation, data.test)]
        assert not seen[0] & seen[1]
        assert not seen[0] & seen[2]
        assert not seen[1] & seen[2]

    def test_conditions_touch_neither_validation_nor_test(self) -> None:
        """Only what is trained on is noisy, thinned or cut."""
        before, after = load(self.regime), self.conditioned(1)
        for name in ("validation", "test"):
            assert torch.equal(getattr(before, name).labels, getattr(after, name).labels)
            assert torch.equal(getattr(before, name).inputs, getattr(after, name).inputs)

    def test_conditions_are_drawn_once_per_seed(self) -> None:
        """The same seed gives the same training split."""
        one, again = self.conditioned(1), self.conditioned(1)
        assert torch.equal(one.train.labels, again.train.labels)
        assert torch.equal(one.train.inputs, again.train.inputs)
        assert bool((one.class_counts > 0).all())

    def test_a_trial_repeats_itself(self) -> None:
        """One epoch, twice: the same loss and the same metrics, bit for bit."""
        one, again = self.record(1), self.record(1)
        assert one.status == "completed", one.reason
        assert one.epochs[0].train_loss == again.epochs[0].train_loss
        assert dataclasses.asdict(one)["test"] == dataclasses.asdict(again)["test"]


def _samples(split: Split) -> set[bytes]:
    return {sample.contiguous().cpu().numpy().tobytes() for sample in split.inputs}
