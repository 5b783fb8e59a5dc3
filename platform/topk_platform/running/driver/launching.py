"""The settings of a run, and its connection to Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from topk_platform.errors import UserError
from topk_platform.records import NEEDED, Store
from topk_platform.records.artifacts.files import KINDS, Kind
from topk_platform.running.cluster.address import host_and_port
from topk_platform.running.cluster.patience import Patience
from topk_platform.running.driver.budget import Budget
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_platform.running.own_ray.lifeline import Lifeline
from topk_platform.running.own_ray.scratch import check_temporary
from topk_platform.specs import Study

__all__ = ["Cluster", "Launch", "on_cluster"]


@dataclass(frozen=True)
class Launch:
    """The settings of a run, see :func:`~topk_platform.running.driver.study.run`."""

    store: Store
    address: str | None = None
    workers: int | None = None
    mlflow: str | None = None
    checkpoint_seconds: float = 30.0
    budget: Budget = field(default_factory=Budget)
    retry_failed: bool = False
    mixed: bool = False
    patience: Patience = field(default_factory=Patience)
    networks: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    only: Sequence[str] = ()
    sync: Sequence[str] = ()

    @property
    def needed(self) -> Sequence[Kind]:
        """The kinds of files without which a confirmation is trained again."""
        return KINDS if self.networks else NEEDED

    def check(self) -> None:
        """Raise ``UserError`` for values that are out of range."""
        if self.workers is not None and self.workers < 1:
            raise UserError(f"workers must be at least 1, got {self.workers}")
        if not self.checkpoint_seconds >= 0:
            raise UserError(f"checkpoint_seconds must be at least 0, got {self.checkpoint_seconds}")
        if self.address not in (None, "auto"):
            host_and_port(self.address)


@dataclass(frozen=True)
class Cluster:
    """The connected cluster.

    Args:
        slots: How many trials may run at once.
        environment: The properties of its machines that decide a result's last bits; None if the machines were not
            asked.
        gpus: How many GPUs it has.
        line: Checks whether Ray still runs.
    """

    slots: int = 0
    environment: Mapping[str, str] | None = None
    gpus: float = 0.0
    line: Lifeline = field(default_factory=Lifeline)


@contextmanager
def on_cluster(study: Study, launch: Launch) -> Iterator[Cluster]:
    """Connect to Ray for as long as the block lasts.

    Args:
        study: The study.
        launch: The settings of the run.
    """
    check_temporary()
    # Ray and Tune take seconds to import, and a finished study does not need them. Everything is imported before other
    # threads start, because these import modules too.
    with interrupts_wait():
        import ray  # noqa: PLC0415

        import topk_platform.running.driver.tuning  # noqa: F401, PLC0415
        from topk_platform.running.cluster.connecting import connected  # noqa: PLC0415
        from topk_platform.running.cluster.machines import check_shared, common_environment  # noqa: PLC0415

    here = launch.address is None and not ray.is_initialized()
    with connected(study, launch.address, launch.workers, launch.patience) as (slots, line):
        if not here:
            check_shared(launch.store, study, launch.patience)
        environment = None if here or launch.mixed else common_environment(study, launch.patience)
        gpus = ray.cluster_resources().get("GPU", 0.0)
        yield Cluster(slots, environment, gpus, line)
