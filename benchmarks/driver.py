"""What a study's driver spends on a trial beside its training: time and memory, as the number of trials grows.

python benchmarks/driver.py next                 # the next trial of 100 arms, against a look through all trials
python benchmarks/driver.py trials --count 3000  # real Ray, Tune and order; trainings of nothing
"""

from __future__ import annotations

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ray import tune

from topk_platform import Arm, Float, Loss, Model, NoPruning, Protocol, Random, Recipe, Regime, Study
from topk_platform.identity import Identity
from topk_platform.protocol import ArmProgress, StudyProgress
from topk_platform.protocol.search_progress import Ended
from topk_platform.running import tuner as tuning
from topk_platform.running.cluster.connecting import connected
from topk_platform.running.cluster.reaching import Patience
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import EpochRecord, Trial, TrialRecord

LOSS = Loss("smooth_topk_svm", {"tau": Float(0.01, 10)}, {"tau": 1.0})
STARTED = 30


def a_study(arms: int, trials: int) -> Study:
    """Arms whose values are drawn at random: what TPE takes for one is Optuna's affair."""
    how = Protocol(Random(), pruner=NoPruning())
    made = [
        Arm(Regime(f"r{i}", "digits"), Model("mlp"), LOSS, 3, Recipe(4), protocol=how) for i in range(arms)
    ]
    return Study("s", made, topk=(1, 3), trials=trials, seeds=1)


def a_study_after(study: Study, ended: int) -> StudyProgress:
    """A study of which so many trials of each arm have ended."""
    past = {number: Ended(number, {"tau": 1.0}, "completed", {4: 0.5}) for number in range(ended)}
    return StudyProgress(
        ArmProgress(study, arm, Identity("c", "f"), searched=dict(past)) for arm in study.arms
    )


def looked_for(progress: StudyProgress) -> object:
    """The arm and the number that come next, found by looking through all trials."""

    def ready(arm: ArmProgress) -> list[int]:
        wanted = [number for number in range(arm.trials) if number not in arm.searched]
        return [
            n
            for n in wanted
            if ("search", n, 0) not in arm.running and all(m in arm.searched for m in range(n))
        ]

    left = {arm.arm_id: len(arm.missing()) - len(arm.running) for arm in progress.arms.values()}
    return max(((left[arm.arm_id], -n) for arm in progress.arms.values() for n in ready(arm)), default=None)


def milliseconds(work: Callable[[], object], times: int) -> float:
    """What a call takes on average."""
    began = time.perf_counter()
    for _ in range(times):
        work()
    return 1e3 * (time.perf_counter() - began) / times


def next_slots(progress: StudyProgress) -> list[object]:
    """Each arm's next trial to start."""
    return [arm.next_slot() for arm in progress.arms.values()]


def time_next() -> None:
    """Print a row for each number of trials an arm."""
    print("arms × trials | next trial | the choice alone | by looking through all")
    for trials in (100, 1000):
        progress = a_study_after(a_study(100, trials), trials // 2)
        progress.next_trials()  # which imports Optuna
        whole = milliseconds(progress.next_trials, STARTED)
        choice = milliseconds(partial(next_slots, progress), STARTED)
        slow = milliseconds(partial(looked_for, progress), 2)
        print(f"100 × {trials} | {whole:.2f} ms | {choice:.3f} ms | {slow:.0f} ms")


class Nothing(tune.Trainable):  # type: ignore[misc]
    """A worker that has every trial's record at once."""

    def setup(self, config: dict[str, Any]) -> None:
        """Take the first trials."""
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trials."""
        self.trials = new_config["order"]["trials"]
        return True

    def step(self) -> dict[str, Any]:
        """Bring the trials' records, of thirty epochs."""
        epochs = tuple(EpochRecord(n, 0.5, {"top1": 0.5, "top3": 0.5}, 1.0, 0.1) for n in range(1, 31))
        records = [TrialRecord(Trial.from_json(text), "completed", epochs=epochs) for text in self.trials]
        return {"done": True, "epoch": 30, "records": [record.to_json() for record in records]}


def resident() -> float:
    """MiB of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def time_trials(count: int, every: int) -> None:
    """Print a row for every so many trials: of a driver that stands for any number of them, all are alike."""
    setattr(tuning, "TrialTrainable", Nothing)  # noqa: B010 - what Tune is given in its place
    study = a_study(50, count // 50)
    progress, ended = a_study_after(study, 0), 0
    wall, own = time.perf_counter(), time.process_time()

    def keep(_record: TrialRecord) -> None:
        nonlocal ended, wall, own
        ended += 1
        if ended % every == 0:
            gc.collect()
            spent = (time.perf_counter() - wall) / every, (time.process_time() - own) / every
            print(
                f"{ended} | {1e3 * spent[0]:.0f} ms | {1e3 * spent[1]:.1f} ms | {resident():.0f} MiB",
                flush=True,
            )
            wall, own = time.perf_counter(), time.process_time()

    print("trials | a trial | the driver's processor time | its memory")
    with connected(study, None, 2, Patience()) as line, tempfile.TemporaryDirectory() as folder:
        options = RunOptions(workers=2)
        order = tuning.order_for(study, folder, options, 2)
        dispatcher = Dispatcher(progress, keep, lambda _event: None, order, line=line)
        tuning.tune_trials(study, dispatcher, options, 2)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("next", "trials"))
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--every", type=int, default=500, help="trials a row")
    arguments = parser.parse_args()
    if arguments.what == "next":
        time_next()
    else:
        time_trials(arguments.count, arguments.every)


if __name__ == "__main__":
    main()
