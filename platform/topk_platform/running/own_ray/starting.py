"""A Ray of our own on this machine: how it is started, watched and ended."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import ray

from topk_platform.errors import ClusterError, reason
from topk_platform.running.cluster.address import host_and_port
from topk_platform.running.machine.devices import slices_here
from topk_platform.running.machine.resources import local_cpus
from topk_platform.running.own_ray.interrupts import interrupts_wait
from topk_platform.running.own_ray.lifeline import GONE_CODE, HEAD, RAYLET, Lifeline
from topk_platform.running.own_ray.scratch import RAYS, end, ray_folder, scratch_folder
from topk_platform.running.own_ray.variables import in_variables
from topk_platform.running.ray_internals import lean, leave, on_loopback
from topk_platform.specs import Study

__all__ = ["RECONNECT", "needed", "own_ray", "shut_down"]

RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""The environment variable with the seconds for which all that belongs to a Ray looks for its head, 60 by default."""

_RECONNECT_SECONDS = "15"  # so long Ray's agents stay after the driver was killed, see also Lifeline
_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 200 * 2**20
_TRIES = 3
# These cannot pass by themselves. All else may: Ray has no classes of its own for its errors, and raises ValueError for
# a port that another process took, and RuntimeError both for wrong arguments and for a late answer.
_LASTING = (ModuleNotFoundError, PermissionError)
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
            with Lifeline(needed(), folder=folder) as line:
                yield line
        finally:
            shut_down(line)
            end(folder)


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
            leave()
            end(folder)
        else:
            return


def _start(study: Study, workers: int | None, folder: str) -> None:
    # Ray counts whole GPUs, but trials get slices. Ray's processes inherit the names of the slices from this process.
    slices = slices_here(os.environ.get("CUDA_VISIBLE_DEVICES")) if study.device == "cuda" else []
    devices = {"CUDA_VISIBLE_DEVICES": ",".join(slices)} if slices else {}
    ours = {RECONNECT: _RECONNECT_SECONDS, **_token(), **devices}
    with in_variables(ours), interrupts_wait(), on_loopback(), lean():
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


@cache  # Ray keeps the first token that a process has
def _token() -> dict[str, str]:
    """Return the variable with a token for a Ray of our own; empty if Ray has a token or wants none.

    Ray would write a token of its own into the home folder, where it stays, and where others may read it.
    """
    given = {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys()
    kept = os.path.exists(os.path.expanduser("~/.ray/auth_token"))
    if given or kept or os.environ.get("RAY_AUTH_MODE") == "disabled":
        return {}
    return {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


def needed() -> dict[str, tuple[str, int]]:
    """Return the addresses of the processes of the connected Ray that this driver needs, for :class:`Lifeline`."""
    context = ray.get_runtime_context()
    (here,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    raylet = here["NodeManagerAddress"], here["NodeManagerPort"]
    return {HEAD: host_and_port(context.gcs_address), RAYLET: raylet}


def shut_down(line: Lifeline) -> None:
    """Leave Ray; without its head, let this process end with our own exit code, a little before Ray would end it."""
    if not line.headless:
        leave()
        return
    atexit.unregister(ray.shutdown)  # it would wait for the head
    atexit.register(_end_at_once)


def _end_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GONE_CODE)
