"""Contracts for your own regimes and samplers, as test classes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Generator

from topk_platform.data import Dataset, Images, Population, Split, apply_conditions, load, read, shots
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.protocol.suggest import suggest
from topk_platform.specs import (
    Arm,
    Choice,
    Dimension,
    Float,
    Int,
    Loss,
    Model,
    Protocol,
    Recipe,
    Regime,
    Sampler,
    Scalar,
    Status,
    Study,
    Trial,
    TrialRecord,
    active,
)
from topk_platform.specs.codec import stream_seed
from topk_platform.training import finish, run_trials

__all__ = ["RegimeContract", "SamplerContract"]

_EPOCHS = 4  # of simulated trainings


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
        once, again = read(self.regime), read(self.regime)
        assert once.fingerprint == again.fingerprint
        drawn, redrawn = (apply_conditions(source, (), _streams(1)) for source in (once, again))
        assert drawn.fingerprint == redrawn.fingerprint
        groups = ([split.groups for split in data.splits.values()] for data in (drawn, redrawn))
        for numbers, others in zip(*groups, strict=True):
            assert numbers is others is None or torch.equal(numbers, others)

    def test_seeds_share_a_dataset_unless_it_is_drawn(self) -> None:
        """From a population, every seed draws its own sample, with the same classes and shape."""
        once, other = self.clean(1), self.clean(2)
        assert (once.fingerprint != other.fingerprint) == isinstance(load(self.regime), Population)
        for name in ("classes", "superclasses", "shape"):
            assert getattr(once, name) == getattr(other, name)

    def test_every_split_holds_every_class(self) -> None:
        """Otherwise macro averages of two splits would be over different classes."""
        data = self.clean(1)
        for split in data.splits.values():
            assert len(torch.unique(split.labels)) == data.classes

    def test_class_counts_are_of_the_training_split(self) -> None:
        """Class counts determine margins, weights and the many-, medium- and few-shot classes."""
        data = self.conditioned(1)
        assert torch.equal(data.class_counts, torch.bincount(data.train.labels, minlength=data.classes))
        groups = torch.stack(list(shots(data.class_counts).values()))
        assert torch.equal(groups.sum(0), torch.ones(data.classes, dtype=torch.int64))

    def test_superclasses_partition_the_classes(self) -> None:
        """Superclasses are numbered from 0 without gaps, so that label noise can draw from each."""
        superclasses = load(self.regime).superclasses
        assert superclasses is None or set(superclasses) == set(range(max(superclasses) + 1))

    def test_no_sample_is_in_two_splits(self) -> None:
        """A test image that was also in the training split would measure memorisation."""
        seen = [set(_list(split)) for split in self.clean(1).splits.values()]
        assert sum(map(len, seen)) == len(set().union(*seen))

    def test_conditions_touch_neither_validation_nor_test(self) -> None:
        """Conditions change only the training split."""
        before, after = self.clean(1), self.conditioned(1)
        for name in ("validation", "test"):
            assert _labelled(before.splits[name]) == _labelled(after.splits[name])

    def test_conditions_keep_what_is_trained_on(self) -> None:
        """Conditions remove samples and never add any; random noise stays within a superclass."""
        before, after = self.clean(1), self.conditioned(1)
        labels = dict(_labelled(before.train))
        assert set(_list(after.train)) <= labels.keys()
        crosses = any(condition.across_superclasses for condition in self.regime.conditions)
        if before.superclasses is not None and not crosses and len(labels) == len(before.train):
            group = before.superclasses
            assert all(group[labels[sample]] == group[label] for sample, label in _labelled(after.train))

    def test_conditions_are_drawn_once_per_seed(self) -> None:
        """The same seed gives the same training split, with at least one sample per class."""
        once, again = self.conditioned(1), self.conditioned(1)
        assert _labelled(once.train) == _labelled(again.train)
        assert bool((once.class_counts > 0).all())

    def test_a_trial_repeats_itself(self) -> None:
        """Training one epoch twice gives the same loss and metrics, bit for bit."""
        once, again = self.record(1), self.record(1)
        assert once.status == "completed", once.reason
        assert once.epochs[0].train_loss == again.epochs[0].train_loss
        assert once.test == again.test


def _streams(seed: int) -> Callable[[str], Generator]:
    return lambda role: Generator().manual_seed(stream_seed(0, seed, role))


def _list(split: Split) -> list[bytes]:
    """Return what identifies each sample: its bytes, or the name of its file."""
    if isinstance(split.inputs, Images):
        return split.inputs.names
    return [sample.contiguous().cpu().numpy().tobytes() for sample in split.inputs]


def _labelled(split: Split) -> list[tuple[bytes, int]]:
    return list(zip(_list(split), split.labels.tolist(), strict=True))


class SamplerContract:
    """Tests of a sampler; subclass it in a test file and set ``sampler``.

    They run studies with simulated trainings: the result of a trial is a function of the trial.

    Attributes:
        sampler: The sampler to test.
        space: The search space.
        first: The values of the first trial.
        trials: The number of search trials; more than the sampler draws at random at the start.
        width: How many trials may run at once.
        ensemble: How many trials train together.

    Example:
        >>> from topk_platform import Random
        >>> class TestRandom(SamplerContract):
        ...     sampler = Random()
        >>> TestRandom().test_an_interrupted_study_goes_on_to_the_same_trials()
    """

    sampler: ClassVar[Sampler]
    space: ClassVar[Mapping[str, Dimension]] = {
        "learning_rate": Float(0.001, 1, log=True),
        "margin": Float(0.0, 2.0),
        "samples": Int(1, 50, log=True),
        "mode": Choice(("a", None, 2)),
    }
    first: ClassVar[Mapping[str, Scalar]] = {"learning_rate": 0.1, "margin": 1.0, "samples": 10, "mode": "a"}
    trials: ClassVar[int] = 12
    width: ClassVar[int] = 2
    ensemble: ClassVar[int] = 1
    _trials: ClassVar[Mapping[int, Trial]]

    @property
    def arm(self) -> Arm:
        """The arm to search."""
        protocol = Protocol(self.sampler, width=self.width, ensemble=self.ensemble)
        loss = Loss("cross_entropy", self.space, self.first)
        return Arm(Regime("r", "digits"), Model("mlp"), loss, 1, Recipe(_EPOCHS), protocol=protocol)

    def progress(self, searched: Mapping[int, Ended] | None = None, trials: int | None = None) -> ArmProgress:
        """Return the state of the arm's search, of which the trials in ``searched`` have ended."""
        study = Study("contract", [self.arm], topk=(1,), trials=trials or self.trials, seeds=1)
        return ArmProgress(study, self.arm, Identity("code", "data"), searched=dict(searched or {}))

    def run(
        self, progress: ArmProgress, workers: int = 1, order: int = 0, stop_after: int | None = None
    ) -> dict[int, Trial]:
        """Search with workers whose trials end in random order; return the trials that ended, by number.

        Args:
            progress: The state of the search.
            workers: The number of trials, or ensembles, that run at once.
            order: Seed of the order in which trials end.
            stop_after: Stop the search once this many trials have ended; None for never.
        """
        draw, arms, ended = random.Random(order), StudyProgress([progress]), dict[int, Trial]()  # noqa: S311 - no secret
        running: list[tuple[Trial, ...]] = []
        while progress.searching and (stop_after is None or len(ended) < stop_after):
            while len(running) < workers and progress.searching and (trials := arms.next_trials()):
                running.append(trials)
            for trial in running.pop(draw.randrange(len(running))):
                arms.end(trial, made_up(trial))
                ended[trial.number] = trial
        return dict(sorted(ended.items()))

    @classmethod
    def alone(cls) -> Mapping[int, Trial]:
        """Return the trials of a search with one worker, by number: the reference of the tests, computed once."""
        if "_trials" not in vars(cls):
            tested = cls()
            cls._trials = tested.run(tested.progress())
        return cls._trials

    def test_suggestions_do_not_depend_on_workers_or_timing(self) -> None:
        """One worker, and several whose trials end in any order, give the same trials, values and thresholds."""
        for order in range(2):
            assert self.run(self.progress(), workers=3, order=order) == self.alone()

    def test_an_interrupted_study_goes_on_to_the_same_trials(self) -> None:
        """A search that is stopped at any point and resumed from the ended trials gives the same trials."""
        for order, stop in enumerate((1, self.trials // 2, self.trials - 1)):
            progress = self.progress()
            before = self.run(progress, workers=2, order=order, stop_after=stop)
            after = self.run(self.progress(progress.searched), workers=3, order=order)
            assert {**before, **after} == self.alone()

    def test_a_larger_budget_only_adds_trials(self) -> None:
        """The first trials of a longer search are those of a shorter one."""
        short, whole = self.run(self.progress(trials=self.trials - 3)), self.alone()
        assert all(whole[number] == trial for number, trial in short.items() if number < self.trials - 3)

    def test_a_suggestion_is_a_function_of_arm_number_and_known_results(self) -> None:
        """A suggestion does not depend on later trials, or on the order of the known ones."""
        progress, last = self.progress(), self.trials - 1
        trials, arm = self.run(progress), self.arm
        known = [progress.searched[number] for number in arm.protocol.known(last)]
        assert (
            suggest(f"{progress.arm_id}/0", arm.loss, arm.protocol, last, known[::-1]) == trials[last].values
        )

    def test_suggestions_lie_in_the_space(self) -> None:
        """Trials have values for exactly the active dimensions; the first trial has the given ones."""
        trials = self.alone()
        assert trials[0].values == self.first
        for trial in trials.values():
            assert trial.values == active(self.space, trial.values)
            assert all(self.space[name].holds(value) for name, value in trial.values.items())

    def test_suggestions_vary(self) -> None:
        """Most trials differ, and no number is the same in all trials that the sampler chooses.

        Every suggestion comes from a fresh sampler, so one that counts its calls suggests the same number for ever.
        """
        trials = self.alone()
        assert len({repr(trial.values) for trial in trials.values()}) > len(trials) // 2
        start = min(self.sampler.random, len(trials) // 2)
        chosen = [trial.values for number, trial in trials.items() if number > start]
        for name in (name for name, dimension in self.space.items() if isinstance(dimension, Float)):
            assert len({values[name] for values in chosen if name in values}) > 1, name


def made_up(trial: Trial) -> Ended:
    """Return the result of a simulated training, a function of the trial; some trials diverge or are pruned."""
    draw = random.Random(trial.key)  # noqa: S311 - no secret
    if draw.random() < 0.1:
        return Ended(trial.number, trial.values, "diverged")
    numbers = [math.log1p(abs(v)) for v in trial.values.values() if isinstance(v, (int, float))]
    good = 1 / (1 + sum((number - 0.5) ** 2 for number in numbers))
    curve: dict[int, float] = {}
    status: Status = "completed"
    for epoch in range(1, _EPOCHS + 1):
        curve[epoch] = round(good * epoch / _EPOCHS + 0.02 * draw.random(), 6)
        if curve[epoch] < dict(trial.stop_below).get(epoch, -math.inf):
            status = "pruned"
            break
    return Ended(trial.number, trial.values, status, curve)
