"""What may start next is the same as by looking through all of a study's trials, and costs the same at any size."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from topk_platform import Arm, Float, Loss, Model, Protocol, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.outcomes import Ended
from topk_platform.search import ArmBoard, Board
from topk_platform.search.board import Slot

SEARCHED = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})
FIXED = Loss("cross_entropy")


def slow_ready(arm: ArmBoard) -> Iterator[Slot]:
    """The slots that may start now, found anew from what has ended."""
    numbers = [n for n in range(arm.trials) if n not in arm.searched]
    slots: list[Slot] = [("search", number, 0) for number in numbers]
    if not numbers and (found := arm.best()) is not None:
        slots = [("confirm", found.number, seed) for seed in range(1, arm.study.seeds + 1)]
        slots = [slot for slot in slots if slot not in arm.confirmed]
    size, width = arm.arm.protocol.ensemble, arm.arm.protocol.width
    for slot in slots:
        known = range(max(0, slot[1] // size * size - width + 1)) if slot[0] == "search" else ()
        if slot not in arm.running | arm.open and all(n in arm.searched for n in known):
            yield slot


def slow_left(arm: ArmBoard) -> int:
    numbers = sum(n not in arm.searched for n in range(arm.trials))
    if numbers:
        return numbers + arm.study.seeds
    found = arm.best()
    seeds = range(1, arm.study.seeds + 1) if found is not None else ()
    return sum(("confirm", found.number, seed) not in arm.confirmed for seed in seeds if found is not None)


def slow_next(board: Board) -> tuple[Slot, ...]:
    candidates = ((arm, slot) for arm in board.arms.values() for slot in slow_ready(arm))
    first = max(candidates, key=lambda pair: slow_left(pair[0]) - len(pair[0].running), default=None)
    return () if first is None else first[0].block(first[1])


def a_study(draw: random.Random) -> Study:
    """Arms of all sorts: with and without a search, wide and narrow, alone and in ensembles."""
    arms = [
        Arm(
            Regime(f"r{place}", "digits"),
            Model("mlp"),
            draw.choice((SEARCHED, SEARCHED, FIXED)),
            3,
            Recipe(epochs=4),
            protocol=Protocol(
                random=50, width=draw.choice((1, 1, 2, 5)), ensemble=draw.choice((1, 1, 2, 3)), pruning=None
            ),
        )
        for place in range(draw.randint(1, 4))
    ]
    return Study("s", arms, topk=(1, 3), trials=draw.randint(1, 9), seeds=draw.randint(1, 5))


def a_past(study: Study, arm: Arm, draw: random.Random) -> ArmBoard:
    """An arm of which some has ended in earlier runs, perhaps of a larger budget, and with gaps."""
    numbers = draw.sample(range(12), draw.randint(0, 9)) if draw.random() < 0.5 else []
    searched = {number: ended(number, draw) for number in numbers} if arm.searches else {}
    confirmed: set[Slot] = {
        ("confirm", draw.randrange(3), draw.randint(1, 7)) for _ in range(draw.randrange(4))
    }
    return ArmBoard(study, arm, Identity("c", "f"), searched=searched, confirmed=confirmed)


def ended(number: int, draw: random.Random) -> Ended:
    status = draw.choice(("completed", "completed", "diverged"))
    return Ended(number, {"tau": 1.0}, status, {4: draw.random()})  # type: ignore[arg-type]


def places(trials: tuple[object, ...]) -> tuple[Slot, ...]:
    return tuple((trial.phase, trial.number, trial.seed) for trial in trials)  # type: ignore[attr-defined]


@given(
    seed=st.integers(0, 10**6), workers=st.integers(1, 6), losses=st.floats(0, 0.4), left=st.floats(0, 0.2)
)
def test_the_same_trials_start_in_the_same_order_as_by_looking_through_all(
    seed: int, workers: int, losses: float, left: float
) -> None:
    draw = random.Random(seed)
    study = a_study(draw)
    board = Board(a_past(study, arm, draw) for arm in study.arms)
    running = []
    while True:
        while len(running) < workers:
            wanted = slow_next(board)
            trials = board.next_trials()
            assert places(trials) == wanted
            if not trials:
                break
            running.append(trials)
        assert board.left == sum(map(slow_left, board.arms.values()))
        assert board.stuck == (not running and board.left > 0)
        if not running:
            break
        trials = running.pop(draw.randrange(len(running)))
        fate = draw.random()
        for trial in trials:
            if fate < left:
                board.leave(trial)
            elif fate < left + losses or board.has_ended(trial):
                board.release(trial)
            else:
                board.end(trial, ended(trial.number, draw))
    assert board.left == 0 or any(arm.open for arm in board.arms.values())


def test_asking_for_the_next_trial_looks_at_none_that_has_ended() -> None:
    """Ten thousand trials of which most have ended: the arm's past is not gone through."""

    class Counting(dict[int, Ended]):
        looked = 0

        def __contains__(self, key: object) -> bool:
            self.looked += 1
            return super().__contains__(key)

    arm = Arm(Regime("r", "digits"), Model("mlp"), SEARCHED, 3, Recipe(4), protocol=Protocol(width=20_000))
    study = Study("s", [arm], topk=(1, 3), trials=10_000, seeds=2)
    past = Counting({number: Ended(number, {"tau": 1.0}, "completed", {4: 0.5}) for number in range(9_000)})
    board = ArmBoard(study, arm, Identity("c", "f"), searched=past)
    past.looked = 0
    for number in range(9_000, 9_500):
        assert board.next_slot() == ("search", number, 0)
        board.take([("search", number, 0)])
    for number in range(9_000, 9_500):
        board.end(("search", number, 0), Ended(number, {"tau": 1.0}, "completed", {4: 0.5}))
    assert past.looked < 10 * 500


def test_an_open_trial_holds_up_what_has_to_know_it_and_nothing_else() -> None:
    arms = [Arm(Regime(f"r{i}", "digits"), Model("mlp"), SEARCHED, 3, Recipe(4)) for i in range(2)]
    study = Study("s", arms, topk=(1, 3), trials=3, seeds=2)
    board = Board(ArmBoard(study, arm, Identity("c", "f")) for arm in arms)
    (first,) = board.next_trials()
    board.leave(first)
    started = 0
    while trials := board.next_trials():
        (trial,) = trials
        assert trial.arm_id != first.arm_id
        board.end(trial, Ended(trial.number, trial.values, "completed", {4: 0.5}))
        started += 1
    assert started == 3 + 2
    assert board.stuck
    assert board.left == 3 + 2
