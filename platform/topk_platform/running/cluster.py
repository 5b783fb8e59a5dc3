"""A Ray cluster to run on: one of this machine's own, or one that answers at an address."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import ray

from topk_platform.errors import ClusterError
from topk_platform.references import is_reference
from topk_platform.specs import Study

__all__ = ["connected", "local_cpus"]

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
_OBJECT_STORE_BYTES = 200 * 2**20
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 22


def local_cpus() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def connected(study: Study, address: str | None, workers: int | None) -> Iterator[int]:
    """Connect to Ray for as long as the block lasts and yield how many trials may run at once.

    Without an address Ray starts on this machine, without dashboard and usage statistics, and is stopped at the
    end. A Ray that the caller has already connected to is used as it is and left running.

    Args:
        study: Says what a trial needs.
        address: ``host:port``, ``ray://host:port`` or ``auto``.
        workers: How many trials may run at once; by default as many as the cluster's cores or GPUs allow.

    Raises:
        ClusterError: if no cluster answers at the address within 30 seconds.
    """
    with _environment(_QUIET):
        ours = not ray.is_initialized()
        if ours:
            _connect(study, address, workers)
        try:
            yield workers or _slots(study, ray.cluster_resources())
        finally:
            if ours:
                ray.shutdown()


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: os.environ.get(name, value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _connect(study: Study, address: str | None, workers: int | None) -> None:
    if address is None:
        ray.init(
            num_cpus=max(local_cpus(), (workers or 1) * study.threads),
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
        return
    _check_answers(address)
    modules = {"py_modules": [str(path) for path in _shipped(study)]}
    ray.init(address=address, runtime_env=modules, logging_level=logging.ERROR, log_to_driver=False)


def _slots(study: Study, resources: Mapping[str, float]) -> int:
    slots = int(resources.get("CPU", 1) // study.threads)
    if study.device == "cuda":
        slots = min(slots, int(resources.get("GPU", 0) / study.gpus))
    if slots < 1:
        needs = f"{study.threads} CPUs" + (f" and {study.gpus} GPUs" if study.device == "cuda" else "")
        raise ClusterError(f"a trial of {study.name} needs {needs}; the cluster has {dict(resources)}")
    return slots


def _check_answers(address: str) -> None:
    """Raise ``ClusterError`` unless a cluster answers; asked in a process of its own, for ``ray.init`` may hang."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise ClusterError(f"no Ray cluster answers at {address!r}: {error}") from error
    code = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False)"
    try:
        subprocess.run(  # noqa: S603 - our own interpreter, the address is an argument and no shell is near
            [sys.executable, "-c", code, address], timeout=_ANSWER_SECONDS, check=True, capture_output=True
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"no Ray cluster answers at {address!r} within {_ANSWER_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or [""]
        raise ClusterError(f"no Ray cluster answers at {address!r}: {lines[-1]}") from error


def _shipped(study: Study) -> list[Path]:
    """Return the packages that workers elsewhere need: ours, and those that the study refers to."""
    names = {"topk_losses", "topk_platform"}
    for arm in study.arms:
        for name in (arm.regime.dataset, arm.model.name, arm.loss.name):
            if is_reference(name):
                names.add(name.partition(":")[0].partition(".")[0])
    return sorted(_location(importlib.import_module(name)) for name in names)


def _location(module: ModuleType) -> Path:
    path = Path(str(module.__file__))
    return path.parent if path.name == "__init__.py" else path
