"""The connection to Ray: to one that is started on this machine, or to a cluster at an address."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import ray
from ray.exceptions import RayError

from topk_platform.errors import ClusterError, reason
from topk_platform.running.cluster.address import is_loopback
from topk_platform.running.cluster.capacity import cluster_size, slots
from topk_platform.running.cluster.patience import Patience
from topk_platform.running.cluster.reaching import check_answers, check_same, listening
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_platform.running.own_ray.lifeline import Lifeline
from topk_platform.running.own_ray.starting import RECONNECT, needed, own_ray, shut_down
from topk_platform.running.own_ray.variables import in_variables
from topk_platform.running.ray_internals import messages_on_stderr, on_loopback
from topk_platform.specs import Study
from topk_platform.user_code import files_of
from topk_platform.versions import references

__all__ = ["Connection", "connected", "joined"]

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_COLOR_PREFIX": "0",  # Ray's messages are mostly kept in files
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a user's relative paths are relative to the folder in which the command runs
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
_BEFORE_RAY = 15.0


class Connection(NamedTuple):
    """A connection to Ray.

    Attributes:
        slots: How many trials may run at once.
        line: Checks whether Ray still runs.
    """

    slots: int
    line: Lifeline


@contextmanager
def connected(
    study: Study, address: str | None, workers: int | None, patience: Patience | None = None
) -> Iterator[Connection]:
    """Connect to Ray for as long as the block lasts; yield how many trials may run at once, and a check of Ray.

    Without an address, Ray starts on this machine and is stopped at the end. It listens on loopback only, and has no
    dashboard and no usage statistics. A cluster at a loopback address is joined at that address; Ray alone would
    use this machine's network address. A Ray that the caller has already connected to is used as it is and left
    running; an address must be its own.

    Args:
        study: The study, which says what resources a trial needs.
        address: ``host:port`` or ``auto``.
        workers: How many trials may run at once; by default as many as the cluster's cores or GPUs allow. A cluster
            with an autoscaler grows up to this number.
        patience: How long to wait for a head that does not listen yet, and for a node on which a trial fits; by
            default a minute.

    Raises:
        ClusterError: if nothing listens at the address, no Ray cluster answers there in time, the caller has connected
            to another cluster, or no trial fits on any node.
    """
    patience = patience or Patience()
    with in_variables(_QUIET), _ray(study, address, workers, patience) as line:
        yield Connection(slots(study, workers, may_grow=address is not None, patience=patience), line)


@contextmanager
def _ray(study: Study, address: str | None, workers: int | None, patience: Patience) -> Iterator[Lifeline]:
    if ray.is_initialized():
        check_same(address, ray.get_runtime_context().gcs_address)
        yield Lifeline()
    elif address is None:
        with messages_on_stderr(), own_ray(study, workers) as line:
            yield line
    else:
        with joined(address, study, patience) as line:
            patience.say(f"joined the Ray cluster at {cluster_size()}")
            yield line


@contextmanager
def joined(address: str, study: Study, patience: Patience) -> Iterator[Lifeline]:
    """Connect to a Ray cluster for as long as the block lasts, whether or not trials fit on it; start nothing there.

    Args:
        address: ``host:port`` or ``auto``.
        study: The study whose modules are sent to workers, beside ours.
        patience: How long to wait for a head that does not listen yet.

    Raises:
        ClusterError: if no cluster answers at the address, as :func:`connected`.
    """
    line = Lifeline()
    with in_variables(_QUIET), messages_on_stderr():
        try:
            _join(patience.until(partial(listening, address)), study)
            limit = float(os.environ.get(RECONNECT, "60"))  # after which Ray ends a driver without a head
            with Lifeline(needed(), max(limit - _BEFORE_RAY, 0.0)) as line:
                yield line
        finally:
            shut_down(line)


def _join(address: str, study: Study) -> None:
    check_answers(address)
    modules = {"py_modules": [str(path) for path in _shipped(study)], "excludes": ["__pycache__", ".git"]}
    try:
        with interrupts_wait(), on_loopback() if is_loopback(address) else nullcontext():
            ray.init(address=address, runtime_env=modules, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ClusterError(f"the Ray cluster at {address!r} cannot be used: {reason(error)}") from error


def _shipped(study: Study) -> list[Path]:
    """Return the packages and modules that workers elsewhere need: ours, and the user's modules that a study uses.

    Packages installed with pip, such as torchvision for ``torchvision.models:resnet18``, must be installed on the
    cluster.
    """
    theirs = files_of(name for arm in study.arms for name in references(arm))
    names = {"topk_losses", "topk_platform", *(name.partition(".")[0] for name in theirs)}
    specs = [spec for spec in map(importlib.util.find_spec, sorted(names)) if spec is not None]
    return [
        Path(next(iter(spec.submodule_search_locations or [str(spec.origin)]))).absolute() for spec in specs
    ]
