"""How busy workers are until a study's last training starts, where its arms take unequally long.

python benchmarks/utilisation.py --arms 16 --workers 8 --studies 100

Made-up studies are simulated: the progress and the order of arms are real, the trainings are not. An arm's
trainings take a time of its own (log-normal, --spread) with a spread within (--within), neither of which is known at
the start. Where an arm's own chain of trials takes longer than a worker's share of all, nothing keeps the workers busy:
such studies are left out. An earlier rule, by which the arm with most trials left goes first, is simulated beside it.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from topk_platform import Arm, Float, Loss, Model, NoPruning, Protocol, Random, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, Durations, Ended, Pace, StudyProgress, study_progress
from topk_platform.specs import Trial

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})


Lasting = Callable[[Trial], float]
"""How many seconds a training lasts: of one trial, or of the ensemble that begins with it."""


@dataclass(frozen=True)
class Simulated:
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
class _Simulation:
    progress: StudyProgress
    lasting: Lasting
    workers: int
    now: float = 0.0
    last_start: float = 0.0
    idle: float = 0.0
    idle_since_last: float = 0.0
    started: int = 0
    running: list[tuple[float, int, tuple[Trial, ...]]] = field(default_factory=list)
    durations: Durations = field(default_factory=Durations)

    def start(self) -> None:
        pace = lambda arm_id: self.durations.of(arm_id, unknown=1.0)  # noqa: E731 - as a budget's
        while len(self.running) < self.workers:
            if not (trials := self.progress.next_trials(pace=pace)):
                return
            self.idle, self.idle_since_last = self.idle + self.idle_since_last, 0.0
            self.last_start, self.started = self.now, self.started + 1
            heapq.heappush(self.running, (self.now + self.lasting(trials[0]), self.started, trials))

    def end(self) -> None:
        then, _, trials = heapq.heappop(self.running)
        self.idle_since_last += (self.workers - len(self.running) - 1) * (then - self.now)
        self.durations.add(trials[0].arm_id, self.lasting(trials[0]))
        self.now = then
        for trial in trials:
            self.progress.end(trial, Ended(trial.number, trial.values, "completed", {1: 0.0}))


def simulated(progress: StudyProgress, lasting: Lasting, workers: int) -> Simulated:
    """Return how a study runs, in the order in which a run starts its trainings; the progress is brought to its end."""
    simulation = _Simulation(progress, lasting, workers)
    simulation.start()
    while simulation.running:
        simulation.end()
        simulation.start()
    return Simulated(workers, simulation.now, simulation.last_start, simulation.idle)


def a_study(arms: int, trials: int, seeds: int) -> Study:
    """Return a study whose arms differ only in their names."""
    how = Protocol(Random(), pruner=NoPruning())
    made = [
        Arm(Regime(f"r{i}", "digits"), Model("mlp"), LOSS, 3, Recipe(4), protocol=how) for i in range(arms)
    ]
    return Study("utilisation", made, topk=(1, 3), trials=trials, seeds=seeds)


@contextmanager
def most_left_first() -> Iterator[None]:
    """Let the arm with most trials left go first, whatever they take."""

    def urgency(arm: ArmProgress, _pace: Pace) -> tuple[float, float]:
        return float(arm.left - len(arm.running)), 0.0

    with patch.object(study_progress, "urgency", urgency):
        yield


def one_study(study: Study, means: dict[str, float], given: argparse.Namespace, seed: int) -> Simulated:
    """Simulate a study; a training's time is drawn from its name, whatever the order."""

    def lasting(trial: Trial) -> float:
        slot = trial.phase, trial.number, trial.seed
        draw = random.Random(f"{seed} {trial.arm.regime.name} {slot}")  # noqa: S311 - of a simulation
        return means[trial.arm_id] * draw.lognormvariate(0, given.within)

    progress = StudyProgress(ArmProgress(study, arm, Identity("code", "data")) for arm in study.arms)
    return simulated(progress, lasting, given.workers)


def main() -> None:
    """Print a row for each rule."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("arms", 16), ("workers", 8), ("trials", 15), ("seeds", 5), ("studies", 100)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--spread", type=float, default=0.5, help="Of the arms' times, as of a logarithm.")
    parser.add_argument("--within", type=float, default=0.3, help="Of one arm's trainings, likewise.")
    given = parser.parse_args()
    study = a_study(given.arms, given.trials, given.seeds)
    results: list[tuple[Simulated, Simulated]] = []
    for seed in range(given.studies):
        draw = random.Random(seed)  # noqa: S311 - as above
        means = {study.arm_id(arm): draw.lognormvariate(0, given.spread) for arm in study.arms}
        share = sum(means.values()) * (given.trials + given.seeds) / given.workers
        if max(means.values()) * (given.trials + 1) > 0.9 * share:
            continue
        with most_left_first():
            before = one_study(study, means, given, seed)
        results.append((one_study(study, means, given, seed), before))
    print(f"{len(results)} of {given.studies} studies could keep {given.workers} workers busy")
    for rank, rule in enumerate(("longest chain first", "most trials left first")):
        busy = sorted(pair[rank].busy for pair in results)
        ratio = sum(pair[rank].seconds for pair in results) / sum(pair[0].seconds for pair in results)
        print(
            f"{rule}: busy {100 * busy[0]:.1f} % at least, {100 * sum(busy) / len(busy):.1f} % on average; "
            f"it took {ratio:.3f} times as long"
        )


if __name__ == "__main__":
    main()
