"""A study on a thousand workers, simulated: where its driver saturates.

python benchmarks/simulation.py --workers 1000 --trials 100000 --seconds 600
python benchmarks/simulation.py --workers 1000 --trials 5000 --seconds 60 --mlflow

Ray Tune's controller with our searcher and callback, the dispatcher, the progress, the ledger and, where asked for,
MLflow are real, and so are their messages and faults. Workers and their trainings are not: a message comes when
the simulated clock says so. That clock runs on by the processor time that the driver really takes, and by what
``ray.wait`` takes for so many workers, measured at the start; a driver that is late hears of ended trials late, and
their workers idle meanwhile.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray
from driver import a_study, a_study_after, resident
from ray.air.execution._internal.tracked_actor import TrackedActor
from ray.exceptions import RayActorError
from ray.tune.execution import tune_controller

from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.running import tuner as tuning
from topk_platform.running.cluster.connecting import connected
from topk_platform.running.cluster.reaching import Patience
from topk_platform.running.dispatcher import Dispatcher
from topk_platform.running.limits import Limits
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import EpochRecord, Study, Trial, TrialRecord
from topk_platform.tracking.feed import Feed, tracking_uri

STARTING = 5.0  # simulated seconds until a worker is there
EPOCHS = 30
REPORT_SECONDS = 20.0  # an epoch of a trial of ten minutes, and what a thousand workers may send


@dataclass
class World:
    """The simulated clock, what is to happen, and what has happened.

    Args:
        seconds: Of training a trial takes on average.
        loss: The probability that a worker is lost amid a trial.
        waiting: Seconds that ``ray.wait`` takes for one worker among many.
    """

    seconds: float
    loss: float
    waiting: float
    now: float = 0.0
    trained: float = 0.0
    late: float = 0.0
    events: int = 0
    lost: int = 0
    _due: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: itertools.count[int] = field(default_factory=itertools.count)
    _spent: float = field(default_factory=time.process_time)

    def at(self, moment: float, work: Callable[[], None]) -> None:
        """Have something happen."""
        heapq.heappush(self._due, (moment, next(self._count), work))

    def clock(self) -> float:
        """Return the simulated time, the driver's own included."""
        spent = time.process_time()
        self.now, self._spent = self.now + spent - self._spent, spent
        return self.now

    def next(self, workers: int, timeout: float) -> bool:
        """Let the next thing happen, if it is due in time: one a turn, as with Ray."""
        now = self.clock()
        if not self._due or self._due[0][0] > now + timeout:
            self.now += timeout
            return False
        moment, _, work = heapq.heappop(self._due)
        self.late += max(0.0, now - moment)
        self.events += 1
        self.now = max(now, moment) + self.waiting * workers
        work()
        return True


def draws(name: str) -> random.Random:
    """Return random draws that depend on a name alone."""
    return random.Random(name)  # noqa: S311 - of a simulation


class Worker:
    """A process that trains: its messages come after as many simulated seconds as its trial takes."""

    def __init__(self, world: World) -> None:
        self.world, self.left, self.lost_after = world, 0.0, 0.0
        self.config: dict[str, Any] = {}
        self.get_auto_filled_metrics = SimpleNamespace(remote=lambda **_options: None)  # Tune's

    def take(self, config: dict[str, Any]) -> None:
        """Take a trial: how long it takes is drawn from its key, whether the worker is lost by the moment as well."""
        self.config = config["order"]
        self.trials = [Trial.from_json(text) for text in self.config["trials"]]
        key = self.trials[0].key
        self.left = self.total = self.world.seconds * draws(key).lognormvariate(-0.125, 0.5)
        luck = draws(f"{key} {self.world.lost}")
        self.lost_after = luck.uniform(0, self.left) if luck.random() < self.world.loss else -1.0

    def step(self) -> tuple[float, dict[str, Any] | None]:
        """Return after how many seconds the next message comes, and the message; None for a worker that is lost."""
        seconds = min(self.left, REPORT_SECONDS)
        if 0 <= self.lost_after < self.total - self.left + seconds:
            return seconds, None
        self.left -= seconds
        self.world.trained += seconds
        if self.left > 0:
            return seconds, {"done": False, "epoch": 1, "kept": 0, "patience": 3600.0}
        epochs = tuple(
            EpochRecord(n, 0.5, {"top1": 0.5, "top3": 0.5}, 1.0, 0.1) for n in range(1, EPOCHS + 1)
        )
        records = [TrialRecord(trial, "completed", epochs=epochs).to_json() for trial in self.trials]
        return seconds, {"done": True, "records": records}


class Workers:
    """What Tune's controller knows as its actor manager."""

    def __init__(self, world: World, **_options: Any) -> None:
        self.world, self._count = world, itertools.count()
        self._pending: set[TrackedActor] = set()
        self._live_actors_to_ray_actors_resources: dict[TrackedActor, tuple[Worker, None]] = {}
        self._failed: set[TrackedActor] = set()

    @property
    def num_live_actors(self) -> int:
        """How many workers there are."""
        return len(self._live_actors_to_ray_actors_resources)

    @property
    def num_pending_actors(self) -> int:
        """How many are starting."""
        return len(self._pending)

    @property
    def num_total_actors(self) -> int:
        """How many there are or will be."""
        return self.num_live_actors + self.num_pending_actors

    num_actor_tasks = num_live_actors

    def get_live_actors_resources(self) -> dict[str, float]:
        """Return what they hold."""
        return {"CPU": float(self.num_live_actors)}

    def add_actor(
        self, cls: Any, resource_request: Any, kwargs: Any, on_start: Any, on_stop: Any, on_error: Any
    ) -> TrackedActor:
        """Have a worker start."""
        del cls, resource_request
        actor = TrackedActor(next(self._count), on_start, on_stop, on_error)
        self._pending.add(actor)
        self.world.at(self.world.clock() + STARTING, partial(self._start, actor, kwargs["config"]))
        return actor

    def _start(self, actor: TrackedActor, config: dict[str, Any]) -> None:
        if actor not in self._pending:
            return
        self._pending.remove(actor)
        worker = Worker(self.world)
        worker.take({name: value for name, value in config.items() if not name.startswith("_")})
        self._live_actors_to_ray_actors_resources[actor] = (worker, None)
        if actor._on_start:
            actor._on_start(actor)

    def schedule_actor_task(
        self,
        tracked_actor: TrackedActor,
        method_name: str,
        args: tuple[Any, ...] = (),
        kwargs: Any = None,
        on_result: Any = None,
        on_error: Any = None,
        _return_future: bool = False,
    ) -> Any:
        """Ask a worker for something."""
        del kwargs
        result = self._live_actors_to_ray_actors_resources.get(tracked_actor)
        if result is None or method_name == "stop":
            return None
        worker, seconds, message = result[0], 0.0, None
        if method_name == "train":
            seconds, message = worker.step()
            if message is None:
                self.world.at(self.world.clock() + seconds, partial(self._lose, tracked_actor, on_error))
                return None
        elif method_name == "reset":
            worker.take(args[0])
            message = True  # type: ignore[assignment]
        self.world.at(self.world.clock() + seconds, partial(self._answer, tracked_actor, on_result, message))
        return None

    def _answer(self, actor: TrackedActor, on_result: Any, message: Any) -> None:
        if actor in self._live_actors_to_ray_actors_resources and on_result:
            on_result(actor, message)

    def _lose(self, actor: TrackedActor, on_error: Any) -> None:
        if self._live_actors_to_ray_actors_resources.pop(actor, None) is None:
            return
        self.world.lost += 1
        self._failed.add(actor)
        error = RayActorError()
        for tell in (actor._on_error, on_error):
            if tell:
                tell(actor, error)

    def remove_actor(self, tracked_actor: TrackedActor, kill: bool = False, stop_future: Any = None) -> bool:
        """Let a worker go; return whether it was there."""
        del kill, stop_future
        self._pending.discard(tracked_actor)
        was = self._live_actors_to_ray_actors_resources.pop(tracked_actor, None) is not None
        if was and tracked_actor._on_stop:
            tracked_actor._on_stop(tracked_actor)
        return was

    def is_actor_started(self, tracked_actor: TrackedActor) -> bool:
        """Return whether it is there."""
        return tracked_actor in self._live_actors_to_ray_actors_resources

    def is_actor_failed(self, tracked_actor: TrackedActor) -> bool:
        """Return whether it was lost."""
        return tracked_actor in self._failed

    def clear_actor_task_futures(self, tracked_actor: TrackedActor) -> None:
        """Forget nothing: nothing is kept."""

    def next(self, timeout: float = 0.0) -> bool:
        """Let the next thing happen."""
        return self.world.next(self.num_live_actors, timeout)

    def cleanup(self) -> None:
        """End."""


@ray.remote(num_cpus=0, max_concurrency=1)
class Asleep:
    """Answers nothing but to one call."""

    def sleep(self) -> None:
        """Never return."""
        time.sleep(10**6)

    def answer(self) -> None:
        """Return at once."""


def seconds_of_waiting(many: int = 1000, times: int = 30) -> float:
    """Return what ``ray.wait`` takes for each of so many answers that are under way, one of which has come."""
    asleep, awake = Asleep.remote(), Asleep.remote()  # type: ignore[attr-defined]
    pending = [asleep.sleep.remote() for _ in range(many)]
    ready = awake.answer.remote()
    ray.get(ready)
    began = time.process_time()
    for _ in range(times):
        random.shuffle(pending)
        ray.wait([*pending, ready], num_returns=1, timeout=1.0)
    spent = time.process_time() - began
    ray.kill(asleep)
    ray.kill(awake)
    return spent / times / many


def put_all(feed: Feed, records: Sequence[TrialRecord]) -> None:
    """Hand over what was committed."""
    for record in records:
        feed.put(record)


def simulate(study: Study, world: World, workers: int, mlflow: bool) -> None:
    """Run a study to its end, and print a row."""
    progress, began = a_study_after(study, 0), time.process_time()
    tune_controller.RayActorManager = partial(Workers, world)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Store.open(folder)
        ledger = Ledger.open(store, study.name)
        writer = stack.enter_context(ledger.writing(study))
        feed = Feed(tracking_uri(folder), ledger, folder)
        if mlflow:
            feed.start()
            writer.committed = partial(put_all, feed)
        options = RunOptions(workers=workers)
        order = tuning.order_for(study, store.at(study.name).address, options, workers)
        limits = Limits(clock=world.clock)
        dispatcher = Dispatcher(progress, writer.put, lambda _event: None, order, limits)
        faults = tuning.tune_trials(study, dispatcher, options, workers)
        writer.flush()
        feed.close()
    spent, elapsed = time.process_time() - began, world.clock()
    print(
        f"{workers} | {world.seconds:g} s | {progress.total} | {world.lost} | {len(faults.open)} | "
        f"{1e3 * spent / progress.total:.1f} ms | {100 * world.trained / workers / elapsed:.0f} % | "
        f"{world.late / world.events:.2f} s | {elapsed / 3600:.1f} h | {resident():.0f} MiB",
        flush=True,
    )


def main() -> None:
    """Simulate what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600.0, help="Of training a trial.")
    parser.add_argument("--lost", type=float, default=0.01, help="Workers lost, by trial.")
    parser.add_argument("--mlflow", action="store_true", help="Have MLflow written as well.")
    given = parser.parse_args()
    arms = 2 * given.workers  # one trial of an arm at a time, and more arms than workers
    study = a_study(arms, max(1, given.trials // arms - 1))
    with connected(study, None, 2, Patience()):
        waiting = seconds_of_waiting()
        print(f"ray.wait: {1e6 * waiting:.2f} µs for each worker")
        print(
            "workers | a trial | trials | workers lost | left open | driver's processor time a trial | workers busy | "
            "late | it took | memory"
        )
        simulate(study, World(given.seconds, given.lost, waiting), given.workers, given.mlflow)


if __name__ == "__main__":
    main()
