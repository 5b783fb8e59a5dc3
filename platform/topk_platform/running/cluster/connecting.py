"""The connection to Ray: to one of our own on this machine, or to a cluster at an address."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path

import ray
from ray.exceptions import RayError

from topk_platform.errors import ClusterError, reason
from topk_platform.references import is_reference
from topk_platform.running.cluster.driver_process import end, in_variables, interrupts_wait, scratch_folder
from topk_platform.running.cluster.lifeline import GONE_CODE, HEAD, RAYLET, Lifeline
from topk_platform.running.cluster.machine import local_cpus, slices_here
from topk_platform.running.cluster.ray_internals import leave, messages_on_stderr, on_loopback
from topk_platform.running.cluster.reaching import (
    Patience,
    check_answers,
    host_and_port,
    is_loopback,
    listening,
)
from topk_platform.specs import Study
from topk_platform.user_code import files_of
from topk_platform.versions import references

__all__ = ["connected"]

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_COLOR_PREFIX": "0",  # Ray's messages are mostly kept in files
}
# The seconds for which all that belongs to a Ray looks for its head, 60 by default; then Ray ends the driver.
_RECONNECT = "RAY_gcs_rpc_server_reconnect_timeout_s"
# A Ray of our own gets fewer: if its driver was killed, its agents begin to end after this time.
_RECONNECTS = {_RECONNECT: "15"}
_BEFORE_RAY = 15.0
_SILENT = {"logging_level": logging.ERROR, "log_to_driver": False}
_OBJECT_STORE_BYTES = 200 * 2**20
_LOG = logging.getLogger("topk_platform")


@contextmanager
def connected(
    study: Study, address: str | None, workers: int | None, patience: Patience
) -> Iterator[Lifeline]:
    """Connect to Ray for as long as the block lasts, whether or not trials fit on it.

    Without an address, Ray starts on this machine, in a folder that is deleted at the end, and is stopped at the end.
    It listens on loopback only, and has no dashboard and no usage statistics. A cluster at a loopback address is joined
    at that address; Ray alone would use this machine's network address. A Ray that the caller has already connected to
    is used as it is and left running; an address must be its own.

    Args:
        study: The study, which says what resources a trial needs. Its modules are sent to workers, beside ours.
        address: ``host:port`` or ``auto``; None for a Ray of our own.
        workers: How many trials may run at once, if the caller says so; only a Ray of our own needs it.
        patience: How long to wait for a head that does not listen yet.

    Raises:
        ClusterError: if nothing listens at the address, no Ray cluster answers there in time, the caller has connected
            to another cluster, or a Ray of our own has not started after three tries.
    """
    if ray.is_initialized():
        given = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", given):
            raise ClusterError(
                f"--address is {address!r}, but this process has already joined the Ray cluster at {given!r}"
            )
        yield Lifeline()
        return
    with ExitStack() as stack:
        if address is not None:
            start = partial(_join, address, study, patience)
        else:
            # Inside the private folder, because Ray opens its own to everybody.
            folder = f"{stack.enter_context(scratch_folder())}/r"
            stack.callback(end, folder)
            stack.enter_context(in_variables(_RECONNECTS))
            start = partial(_start, study, workers, folder)
        yield stack.enter_context(_watched(start))


def _join(address: str, study: Study, patience: Patience) -> None:
    address = patience.until(partial(listening, address))
    modules = {"py_modules": [str(path) for path in _shipped(study)], "excludes": ["__pycache__", ".git"]}
    with on_loopback() if is_loopback(host_and_port(address)[0]) else nullcontext():
        check_answers(address)
        try:
            with interrupts_wait():
                ray.init(address=address, runtime_env=modules, **_SILENT)
        except (OSError, RuntimeError, ValueError, RayError) as error:
            raise ClusterError(f"the Ray cluster at {address!r} cannot be used: {reason(error)}") from error
    patience.say(f"joined the Ray cluster at {address}")


def _shipped(study: Study) -> list[Path]:
    """Return the packages and modules that other machines need: ours, and the user's modules that a study uses.

    Packages installed with pip, such as torchvision for ``torchvision.models:resnet18``, must be installed on the
    cluster.
    """
    theirs = files_of(
        [*filter(is_reference, study.measures), *(n for arm in study.arms for n in references(arm))]
    )
    names = {"topk_losses", "topk_platform", *(name.partition(".")[0] for name in theirs)}
    specs = [spec for spec in map(importlib.util.find_spec, sorted(names)) if spec is not None]
    return [
        Path(next(iter(spec.submodule_search_locations or [str(spec.origin)]))).absolute() for spec in specs
    ]


def _start(study: Study, workers: int | None, folder: str, tries: int = 3) -> None:
    """Start Ray; try again if it does not start, because on a busy machine it gives up after 30 seconds."""
    try:
        with in_variables(_token()), interrupts_wait(), on_loopback():
            ray.init(
                _node_ip_address="127.0.0.1",
                _temp_dir=folder,
                address="local",  # otherwise Ray would join RAY_ADDRESS, or another Ray on this machine
                num_cpus=max(local_cpus(), (workers or 1) * study.threads),
                num_gpus=len(slices_here()) or None,  # Ray by itself counts whole GPUs
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                **_SILENT,
            )
    except Exception as error:  # Ray raises errors without a class of their own
        if tries == 1:
            busy = "if the reason is not clear, the machine may be too busy, or low on memory or disk space"
            raise ClusterError(f"Ray cannot start: {reason(error)} ({busy})") from error
        _LOG.warning("Ray did not start and is started again: %s", reason(error))
        leave()
        end(folder)
        _start(study, workers, folder, tries - 1)


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


@contextmanager
def _watched(start: Callable[[], None]) -> Iterator[Lifeline]:
    """Start or join Ray, watch over it for as long as the block lasts, and leave it at the end."""
    line = Lifeline()
    with in_variables(_QUIET), messages_on_stderr():
        try:
            start()
            context = ray.get_runtime_context()
            (here,) = (node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
            raylet = here["NodeManagerAddress"], here["NodeManagerPort"]
            patience = max(float(os.environ.get(_RECONNECT, "60")) - _BEFORE_RAY, 0.0)
            line.watch({HEAD: host_and_port(context.gcs_address), RAYLET: raylet}, patience)
            yield line
        finally:
            line.stop()
            # Without a head no call of Ray would return; this process ends with our own exit code, before Ray ends it.
            if line.headless:
                atexit.unregister(ray.shutdown)
                atexit.register(_end_at_once)
            else:
                leave()


def _end_at_once() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(GONE_CODE)
