"""What may start next is the same as by looking through all of a study's trials, and costs the same at any size."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from topk_platform import TPE, Arm, Float, Loss, Model, NoPruning, Protocol, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, StudyProgress
from topk_platform.protocol.search_progress import Ended, Slot, best

SEARCHED = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})
FIXED = Loss("cross_entropy")


SPAN = 1_000_000  # between the numbers, and the seeds, of two searches


def sequence(arm: ArmProgress, search: int) -> list[int]:
    """A search's trials in order."""
    return [SPAN * search + position for position in range(60)]


def asked(arm: ArmProgress, search: int) -> list[int]:
    """The trials of its sequence that the budget asks for."""
    return sequence(arm, search)[: arm.study.trials // arm.study.searches] if arm.arm.is_searched else []


def missing(arm: ArmProgress, search: int) -> list[int]:
    """A search's trials that have not ended."""
    return [n for n in asked(arm, search) if n not in arm.searched]


def seeds_of(arm: ArmProgress, search: int) -> list[int]:
    """The seeds of a search, or of all searches for an arm that searches nothing."""
    blocks = [search] if arm.arm.is_searched else range(arm.study.searches)
    each = arm.study.seeds // arm.study.searches
    return [SPAN * block + index for block in blocks for index in range(1, each + 1)]


def slow_chosen(arm: ArmProgress, search: int) -> int | None:
    """The number that a search has chosen, None before its end and of one without a completed trial."""
    if not arm.arm.is_searched:
        return 0
    numbers = asked(arm, search)
    if any(n not in arm.searched for n in numbers):
        return None
    result = best(arm.searched[n] for n in numbers)
    return None if result is None else result.number


def slow_known(arm: ArmProgress, number: int) -> list[int]:
    """The trials that one has to know: of its search, all but those of its ensemble and of as many before as the
    width says."""
    order = sequence(arm, number // SPAN)
    size = arm.arm.protocol.ensemble
    before = order.index(number) // size * size - arm.arm.protocol.width + 1
    return order[: max(0, before)]


def taking_turns(slot: Slot) -> tuple[int, ...]:
    phase, number, seed = slot
    position, search = number % SPAN, number // SPAN
    return (0, position, search) if phase == "search" else (seed % SPAN, seed // SPAN, position, search)


def slow_ready(arm: ArmProgress) -> Iterator[Slot]:
    """The slots that may start now, found anew from what has ended."""
    count = arm.arm.repeats.count
    slots: list[Slot] = []
    for search in range(count):
        own = missing(arm, search)
        ready = [n for n in own if all(m in arm.searched for m in slow_known(arm, n))]
        slots += [("search", n, SPAN * search) for n in ready]
        if not own and (number := slow_chosen(arm, search)) is not None:
            slots += [("confirm", number, seed) for seed in seeds_of(arm, search)]
    for slot in sorted(slots, key=taking_turns):
        if slot not in arm.running | arm.open | arm.confirmed.keys():
            yield slot


def slow_left(arm: ArmProgress) -> int:
    left, count = 0, arm.arm.repeats.count
    for search in range(count):
        own, seeds = missing(arm, search), seeds_of(arm, search)
        waits = any(n not in arm.searched for n in asked(arm, search))
        number = slow_chosen(arm, search)
        known = [seed for seed in seeds if ("confirm", number, seed) not in arm.confirmed]
        left += len(own) + (len(seeds) if waits else 0 if number is None else len(known))
    return left


def slow_rounds(arm: ArmProgress) -> int:
    """How many trainings have to follow one another, counted search by search: those of the search that is behind
    most, and one confirmation."""
    count, rounds, confirmed = arm.arm.repeats.count, [], []
    size, width = arm.arm.protocol.ensemble, arm.arm.protocol.width
    for search in range(count):
        own, seeds = missing(arm, search), seeds_of(arm, search)
        waits = any(n not in arm.searched for n in asked(arm, search))
        free = [n for n in own if ("search", n, SPAN * search) not in arm.running | arm.open]
        number = slow_chosen(arm, search)
        slots = [("confirm", number, seed) for seed in seeds]
        begun = arm.running | arm.open | arm.confirmed.keys()
        confirms = seeds if waits else [slot for slot in slots if slot not in begun]
        length = len(asked(arm, search))  # the last trials train in so many blocks
        blocks = -(-length // size) - (length - len(free)) // size if free else 0
        rounds.append(-(-blocks // -(-width // size)))
        confirmed.append(bool(confirms and (waits or number is not None)))
    return max(rounds) + max(confirmed)


def slow_next(progress: StudyProgress) -> tuple[Slot, ...]:
    candidates = ((arm, slot) for arm in progress.arms.values() for slot in slow_ready(arm))
    first = max(
        candidates,
        key=lambda pair: (slow_rounds(pair[0]), slow_left(pair[0]) - len(pair[0].running)),
        default=None,
    )
    return () if first is None else first[0].block(first[1])


def a_study(draw: random.Random) -> Study:
    """Arms of all sorts: with and without a search, wide and narrow, alone and in ensembles, searched repeatedly."""
    searches = draw.choice((1, 1, 2, 3))
    arms = [
        Arm(
            Regime(f"r{index}", "digits"),
            Model("mlp"),
            draw.choice((SEARCHED, SEARCHED, FIXED)),
            3,
            Recipe(epochs=4),
            protocol=Protocol(
                TPE(random=50),
                width=draw.choice((1, 1, 2, 5)),
                ensemble=draw.choice((1, 1, 2, 3)),
                pruner=NoPruning(),
                searches=searches,
            ),
        )
        for index in range(draw.randint(1, 4))
    ]
    trials, seeds = (searches * draw.randint(1, 9 // searches) for _ in range(2))
    return Study("s", arms, topk=(1, 3), trials=trials, seeds=seeds)


def a_past(study: Study, arm: Arm, draw: random.Random) -> ArmProgress:
    """An arm of which some has ended in earlier runs, perhaps of a larger budget, and with gaps."""
    known = [SPAN * search + position for search in range(3) for position in range(10)]
    numbers = draw.sample(known, draw.randint(0, 15)) if draw.random() < 0.5 else []
    searched = {number: ended(number, draw) for number in numbers} if arm.is_searched else {}
    slots: list[Slot] = [
        ("confirm", draw.choice(known[:3]), SPAN * draw.randrange(3) + draw.randint(1, 7))
        for _ in range(draw.randrange(4))
    ]
    confirmed = {slot: ended(slot[1], draw) for slot in slots}
    return ArmProgress(study, arm, Identity("c", "f"), searched=searched, confirmed=confirmed)


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
    progress = StudyProgress(a_past(study, arm, draw) for arm in study.arms)
    running = []
    while True:
        while len(running) < workers:
            wanted = slow_next(progress)
            trials = progress.next_trials()
            assert places(trials) == wanted
            if not trials:
                break
            running.append(trials)
        assert progress.left == sum(map(slow_left, progress.arms.values()))
        assert progress.stuck == (not running and progress.left > 0)
        if not running:
            break
        trials = running.pop(draw.randrange(len(running)))
        fate = draw.random()
        for trial in trials:
            if fate < left:
                progress.leave(trial)
            elif fate < left + losses or progress.has_ended(trial):
                progress.release(trial)
            else:
                progress.end(trial, ended(trial.number, draw))
    assert progress.left == 0 or any(arm.open for arm in progress.arms.values())


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
    progress = ArmProgress(study, arm, Identity("c", "f"), searched=past)
    past.looked = 0
    for number in range(9_000, 9_500):
        assert progress.next_slot() == ("search", number, 0)
        progress.take([("search", number, 0)])
    for number in range(9_000, 9_500):
        progress.end(("search", number, 0), Ended(number, {"tau": 1.0}, "completed", {4: 0.5}))
    assert past.looked < 10 * 500
