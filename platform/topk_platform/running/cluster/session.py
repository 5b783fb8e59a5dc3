"""The connection of a run: to a Ray of its own, to a cluster, or to a Ray that the caller has joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from topk_platform.records import Store
from topk_platform.running.cluster.patience import Patience
from topk_platform.running.options import RunOptions
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_platform.running.own_ray.lifeline import Lifeline
from topk_platform.running.own_ray.scratch import check_temporary
from topk_platform.specs import Study

__all__ = ["Cluster", "on_cluster"]


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
def on_cluster(study: Study, options: RunOptions, store: Store, patience: Patience) -> Iterator[Cluster]:
    """Connect to Ray for as long as the block lasts.

    Args:
        study: The study.
        options: The options of the run.
        store: The store, which all machines must see.
        patience: How long to wait for the cluster.
    """
    check_temporary()
    # Ray and Tune take seconds to import, and a finished study does not need them. Everything is imported before other
    # threads start, because these import modules too.
    with interrupts_wait():
        import ray  # noqa: PLC0415

        import topk_platform.running.tuning  # noqa: F401, PLC0415
        from topk_platform.running.cluster.connecting import connected  # noqa: PLC0415
        from topk_platform.running.cluster.machines import check_nodes  # noqa: PLC0415

    here = options.address is None and not ray.is_initialized()
    with connected(study, options.address, options.workers, patience) as (slots, line):
        common = None if here else check_nodes(study, store, patience, mixed=options.mixed)
        environment = None if options.mixed else common
        gpus = ray.cluster_resources().get("GPU", 0.0)
        yield Cluster(slots, environment, gpus, line)
