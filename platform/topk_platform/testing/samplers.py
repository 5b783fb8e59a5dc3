"""The contract of samplers: the properties that make a study's outcome independent of timing."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import ClassVar

from topk_platform.identity import Identity
from topk_platform.protocol import ArmBoard, Board
from topk_platform.protocol.ended import Ended
from topk_platform.protocol.search.suggest import suggest
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
    active,
)

__all__ = ["SamplerContract"]

_EPOCHS = 4


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

    def board(self, searched: Mapping[int, Ended] | None = None, trials: int | None = None) -> ArmBoard:
        """Return the state of the arm's search.

        Args:
            searched: The trials that have ended, by number.
            trials: The number of search trials; by default the class's.
        """
        study = Study("contract", [self.arm], topk=(1,), trials=trials or self.trials, seeds=1)
        return ArmBoard(study, self.arm, Identity("code", "data"), searched=dict(searched or {}))

    def run(
        self, board: ArmBoard, workers: int = 1, order: int = 0, stop_after: int | None = None
    ) -> dict[int, Trial]:
        """Search with workers whose trials end in random order; return the trials that ended, by number.

        Args:
            board: The state of the search.
            workers: The number of trials, or ensembles, that run at once.
            order: Seed of the order in which trials end.
            stop_after: Stop the search once this many trials have ended; None for never.
        """
        draw, boards, ended = random.Random(order), Board([board]), dict[int, Trial]()  # noqa: S311 - no secret
        running: list[tuple[Trial, ...]] = []
        while board.searching and (stop_after is None or len(ended) < stop_after):
            while len(running) < workers and board.searching and (trials := boards.next_trials()):
                running.append(trials)
            for trial in running.pop(draw.randrange(len(running))):
                if boards.has_ended(trial):
                    boards.release(trial)
                    continue
                boards.end(trial, made_up(trial))
                ended[trial.number] = trial
        return dict(sorted(ended.items()))

    @classmethod
    def alone(cls) -> Mapping[int, Trial]:
        """Return the trials of a search with one worker, by number: the reference of the tests, computed once."""
        if "_trials" not in vars(cls):
            tested = cls()
            cls._trials = tested.run(tested.board())
        return cls._trials

    def test_suggestions_do_not_depend_on_workers_or_timing(self) -> None:
        """One worker, and several whose trials end in any order, give the same trials, values and thresholds."""
        for order in range(2):
            assert self.run(self.board(), workers=3, order=order) == self.alone()

    def test_an_interrupted_study_goes_on_to_the_same_trials(self) -> None:
        """A search that is stopped at any point and resumed from the ended trials gives the same trials."""
        for order, stop in enumerate((1, self.trials // 2, self.trials - 1)):
            board = self.board()
            before = self.run(board, workers=2, order=order, stop_after=stop)
            after = self.run(self.board(board.searched), workers=3, order=order)
            assert {**before, **after} == self.alone()

    def test_a_larger_budget_only_adds_trials(self) -> None:
        """The first trials of a longer search are those of a shorter one."""
        short, whole = self.run(self.board(trials=self.trials - 3)), self.alone()
        assert all(whole[number] == trial for number, trial in short.items() if number < self.trials - 3)

    def test_a_suggestion_is_a_function_of_arm_number_and_known_results(self) -> None:
        """A suggestion does not depend on later trials, or on the order of the known ones."""
        board, last = self.board(), self.trials - 1
        trials, arm = self.run(board), self.arm
        known = [board.searched[number] for number in arm.protocol.known(last)]
        assert suggest(f"{board.arm_id}/0", arm.loss, arm.protocol, last, known[::-1]) == trials[last].values

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
