"""How long a study takes on several workers, found by simulating its plan."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from topk_platform.protocol import ArmBoard, Board, Slot, paces
from topk_platform.protocol.ended import Ended

__all__ = ["Forecast", "Lasting", "forecast"]

Lasting = Callable[[ArmBoard, Slot], float]
"""How many seconds a training lasts: of one trial, or of the ensemble that begins with it."""


@dataclass(frozen=True)
class Forecast:
    """How a study runs on a number of workers.

    Args:
        workers: How many.
        seconds: Until its last training ends.
        last_start: Until its last training starts.
        idle: Seconds that workers wait until then, summed over workers.
    """

    workers: int
    seconds: float
    last_start: float
    idle: float

    @property
    def busy(self) -> float:
        """The fraction of the workers' time, until the last training starts, in which they train."""
        return 1 - self.idle / (self.workers * self.last_start) if self.last_start else 1.0


@dataclass
class _Play:
    """A study that is played through: the clock, what runs, and how long trainings of each arm have taken so far."""

    board: Board
    lasting: Lasting
    workers: int
    known: dict[str, float]

    def __post_init__(self) -> None:
        self.now = self.last_start = self.idle = self.idle_since_last = 0.0
        self.running: list[tuple[float, int, ArmBoard, tuple[Slot, ...]]] = []
        self.started = 0
        self.means: dict[str, tuple[int, float]] = {}

    def start(self) -> None:
        while len(self.running) < self.workers:
            arm, block = self.board.next_block(pace=paces(self.known))
            if arm is None:
                return
            self.idle, self.idle_since_last = self.idle + self.idle_since_last, 0.0
            self.last_start, self.started = self.now, self.started + 1
            heapq.heappush(self.running, (self.now + self.lasting(arm, block[0]), self.started, arm, block))

    def end(self) -> None:
        then, _, arm, block = heapq.heappop(self.running)
        self.idle_since_last += (self.workers - len(self.running) - 1) * (then - self.now)
        self.learn(arm, self.lasting(arm, block[0]))
        self.now = then
        for slot in block:
            ended = Ended(slot[1], {}, "completed", {1: 0.0}, others=(0.0,) * (len(arm.arm.objectives) - 1))
            self.board.note(arm, slot, ended)

    def learn(self, arm: ArmBoard, seconds: float) -> None:
        count, mean = self.means.get(arm.arm_id, (0, 0.0))
        self.means[arm.arm_id] = count + 1, mean + (seconds - mean) / (count + 1)
        self.known[arm.arm_id] = self.means[arm.arm_id][1]


def forecast(
    board: Board, lasting: Lasting, workers: int, known: Mapping[str, float] | None = None
) -> Forecast:
    """Return how a study runs on a number of workers, in the order in which a run starts its trainings.

    Races and lost workers are not foreseen, and pruning only as far as ``lasting`` expects it.

    Args:
        board: The study's state; the simulation brings it to its end.
        lasting: How long trainings last.
        workers: How many there are.
        known: How long trainings of some arms last, by arm identity, as far as it is known from the start.

    Example:
        >>> from topk_platform.identity import Identity
        >>> from topk_studies import letters_quick
        >>> study = letters_quick()
        >>> board = Board(ArmBoard(study, arm, Identity("code", "data")) for arm in study.arms)
        >>> found = forecast(board, lambda arm, slot: 1.0, workers=2)  # 30 ensembles of five
        >>> found.seconds, round(found.busy, 2)
        (15.0, 1.0)
    """
    play = _Play(board, lasting, workers, dict(known or {}))
    play.start()
    while play.running:
        play.end()
        play.start()
    return Forecast(workers, play.now, play.last_start, play.idle)
