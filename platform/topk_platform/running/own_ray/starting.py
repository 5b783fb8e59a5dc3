"""A Ray of our own on this machine: how it is started, watched and ended."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import psutil
import ray

from topk_platform.errors import ClusterError, reason
from topk_platform.running.machine.devices import slices_here
from topk_platform.running.machine.resources import local_cpus
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_platform.running.own_ray.lifeline import GONE_CODE, Lifeline
from topk_platform.running.own_ray.processes import descendants, end, started_with
from topk_platform.running.own_ray.scratch import RAYS, ray_folder, scratch_folder
from topk_platform.running.own_ray.variables import in_variables
from topk_platform.running.ray_internals import lean, leave, on_loopback, own_sigterm, token
from topk_platform.specs import Study

__all__ = ["own_ray"]

# After the driver was killed, Ray's agents look for their head for this time, by default for a minute. A driver whose
# head was killed has the same time to end by itself, see Lifeline.
_OURS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}
_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 200 * 2**20
_TRIES = 3
# These cannot pass by themselves. All else may: Ray has no classes of its own for its errors, and raises ValueError for
# a port that another process took, and RuntimeError both for wrong arguments and for a late answer.
_LASTING = (ModuleNotFoundError, PermissionError)
_NEEDED = {"raylet": "raylet", "gcs_server": "GCS"}  # by their programs' names
_LOG = logging.getLogger("topk_platform")


@contextmanager
def own_ray(study: Study, workers: int | None) -> Iterator[Lifeline]:
    """Start a Ray on this machine for as long as the block lasts, in a folder that is deleted at the end.

    Args:
        study: The study, which says what resources a trial needs.
        workers: How many trials may run at once, if the caller says so.

    Raises:
        ClusterError: if Ray has not started after three tries, or after one if the reason cannot pass.
    """
    with scratch_folder(ray_folder()) as private:
        folder = f"{private}/{RAYS}"  # inside the private folder, because Ray opens its own to everybody
        line = Lifeline()
        try:
            _try_to_start(study, workers, folder)
            with Lifeline(_needed(folder), folder) as line:
                yield line
        finally:
            _shut_down(folder, line)


def _try_to_start(study: Study, workers: int | None, folder: str) -> None:
    """Start Ray; try again where it does not start, for on a busy machine it gives up after 30 seconds."""
    for tries_left in reversed(range(_TRIES)):
        try:
            _start(study, workers, folder)
        except _LASTING as error:
            raise ClusterError(f"Ray cannot start: {reason(error)}") from error
        except Exception as error:  # Ray raises errors without a class of their own
            if not tries_left:
                busy = "the machine may be too busy, or low on memory or disk space"
                raise ClusterError(
                    f"Ray did not start in {_TRIES} tries ({busy}): {reason(error)}"
                ) from error
            _LOG.warning("Ray did not start and is started again: %s", reason(error))
            _shut_down(folder, Lifeline())
        else:
            return


def _start(study: Study, workers: int | None, folder: str) -> None:
    # Ray counts whole GPUs, but trials get slices. Ray's processes inherit the names of the slices from this process.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    slices = slices_here(visible) if study.device == "cuda" else []
    devices = {"CUDA_VISIBLE_DEVICES": ",".join(slices)} if slices else {}
    ours = {**_OURS, **_token(), **devices}
    with in_variables(ours), interrupts_wait(), own_sigterm(), on_loopback(), lean(), _sheltered():
        ray.init(
            _node_ip_address=_LOOPBACK,
            _temp_dir=folder,
            address="local",  # otherwise Ray would join RAY_ADDRESS, or another Ray on this machine
            num_cpus=max(local_cpus(), (workers or 1) * study.threads),
            num_gpus=len(slices) or None,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE_BYTES,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )


def _needed(folder: str) -> dict[str, psutil.Process]:
    """Return the processes that this Ray needs."""
    names = {process.name(): process for process in started_with(folder)}
    return {shown: names[name] for name, shown in _NEEDED.items() if name in names}


@contextmanager
def _sheltered() -> Iterator[None]:
    """Let processes that start meanwhile ignore SIGTERM and SIGHUP, which others send to all processes of a run.

    SLURM sends SIGTERM, and a terminal that is closed SIGHUP. The driver stops them in its own time, see
    :func:`_shut_down`; without them it would wait a minute for an answer. Trials' own processes accept SIGTERM again,
    see :class:`TrialActor`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shut_down(folder: str, line: Lifeline) -> None:
    """Leave Ray, and end the processes that it started here, with all their children.

    Ray would send its processes SIGTERM, which they ignore, wait for a second and kill them. Killing them at once saves
    four seconds, and they hold nothing that is kept. The agents of a killed raylet would stay for most of a minute.
    """
    ours = list(started_with(folder))
    ours += [child for process in ours for child in descendants(process)]
    if line.headless:  # leaving Ray would wait for the GCS, now and at the end of this process
        atexit.unregister(ray.shutdown)
        atexit.register(_end_at_once)
    else:
        leave()
    end(ours)


def _end_at_once() -> None:
    """End this process with our own exit code and message; Ray would end it a little later."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GONE_CODE)


@cache  # Ray keeps the first token that a process has
def _token() -> Mapping[str, str]:
    return token()
