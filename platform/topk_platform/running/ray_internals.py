"""Private parts of Ray, used where there is no public interface. If one is missing in a version, its fallback is used.

Nothing else in the platform uses a private name of Ray or Ray Tune.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import ray

__all__ = [
    "CLUSTER_VARIABLE",
    "known_heads",
    "lean",
    "leave",
    "messages_on_stderr",
    "on_loopback",
    "own_sigterm",
    "token",
    "wants_token",
    "without_keys",
]

CLUSTER_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The environment variable that keeps Ray on loopback if it is 0 when Ray is imported."""

# The autoscaler, the log monitor, and the dashboard's process, which starts even without a dashboard. A Ray of our own
# needs none of them, and each takes seconds to import Ray.
_NEEDLESS = ("start_monitor", "start_log_monitor", "start_api_server")


def _module(name: str) -> Any:
    """Return a module of Ray's, or None if this Ray has none of that name."""
    try:
        return import_module(f"ray.{name}")
    except ImportError:
        return None


@contextmanager
def _replaced(owner: Any, values: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes for as long as the block lasts; attributes that the owner lacks are left out."""
    before = {name: getattr(owner, name) for name in values if hasattr(owner, name)}
    for name in before:
        setattr(owner, name, values[name])
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def lean() -> Iterator[None]:
    """Start Ray, within the block, without the processes that a Ray on one machine does not need.

    That saves two to three seconds of a core at every start. Fallback: they start.
    """
    with _replaced(getattr(_module("_private.node"), "Node", None), dict.fromkeys(_NEEDLESS, _nothing)):
        yield


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep a Ray that starts within the block from replacing this process's handler of SIGTERM.

    Ray's own handler ends the process at once, also in the midst of Ray's start. Fallback: it is replaced.
    """
    with _replaced(_module("_private.utils"), {"set_sigterm_handler": _nothing}):
        yield


def _nothing(_node: Any, **_options: Any) -> None:
    """Do nothing."""


@contextmanager
def on_loopback() -> Iterator[None]:
    """Let a Ray that starts within the block listen on loopback only, as Ray does by itself on Windows and macOS.

    On Linux, Ray replaces a given loopback address by an address that other machines reach, and listens on all
    addresses. Fallback: the environment variable, which counts for processes that import Ray within the block.
    """
    before = os.environ.get(CLUSTER_VARIABLE)
    os.environ[CLUSTER_VARIABLE] = "0"
    try:
        with _replaced(_module("_private.ray_constants"), {"ENABLE_RAY_CLUSTER": False}):
            yield
    finally:
        os.environ.pop(CLUSTER_VARIABLE)
        if before is not None:
            os.environ[CLUSTER_VARIABLE] = before


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Let Ray's messages go to stderr for as long as the block lasts, so that stdout holds only the command's output.

    Ray prints its messages, such as those about lost processes, on stdout between tables and lines of JSON, even with
    ``log_to_driver=False``. Fallback: these messages stay on stdout.
    """
    worker = _module("_private.worker")
    before = getattr(worker, "print_to_stdstream", None)

    def to_stderr(data: Mapping[str, Any], ignore_prefix: bool) -> None:
        assert before is not None  # noqa: S101 - otherwise this function would replace nothing
        before({**data, "is_err": True}, ignore_prefix)

    with _replaced(worker, {"print_to_stdstream": to_stderr}):
        yield


def known_heads() -> set[str]:
    """Return the addresses of the Rays that run on this machine. Fallback: the last one that was started.

    Ray notes that one's address in its folder of temporary files.
    """
    services = _module("_private.services")
    if hasattr(services, "find_gcs_addresses"):
        services.find_gcs_addresses.cache_clear()  # the process may have ended meanwhile
        return set(services.find_gcs_addresses())
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # noqa: S108 - where Ray writes it
    with suppress(OSError):
        return {noted.read_text().strip()} - {""}
    return set()


def leave() -> None:
    """Leave Ray. If this process has started Ray, kill Ray's processes at once instead of asking them to end.

    This saves four seconds. Fallback: Ray asks them to end, waits and kills them.
    """
    node = getattr(_module("_private.worker"), "_global_node", None)
    for infos in getattr(node, "all_processes", {}).values():
        for info in infos:
            info.process.terminate = info.process.kill
    ray.shutdown()


def token() -> Mapping[str, str]:
    """Return the environment variable with a token for a Ray of our own; empty if Ray has a token or needs none.

    Ray keeps a token in the home folder and can create one there. Only its owner can then read it, because the umask is
    set for that time. Fallback, and if the home folder cannot be written: a token for this process and its children.
    """
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or os.environ.get(
        "RAY_AUTH_MODE"
    ) == "disabled":
        return {}
    setup = _module("_private.authentication.authentication_token_setup")
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        kept = Path.home() / ".ray"
        kept.mkdir(exist_ok=True)
        if (kept / "auth_token").exists():
            return {}
        if os.access(kept, os.W_OK) and hasattr(setup, "generate_and_save_token"):
            _privately(setup.generate_and_save_token)
            return {}
    return {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _privately(write: Any) -> None:
    before = os.umask(0o077)
    try:
        write()
    finally:
        os.umask(before)


def wants_token() -> bool:
    """Return whether Ray authenticates by a token. Fallback: whether the environment says so."""
    utils = _module("_private.authentication.authentication_utils")
    if hasattr(utils, "is_token_auth_enabled"):
        return bool(utils.is_token_auth_enabled())
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


@contextmanager
def without_keys() -> Iterator[None]:
    """Keep Tune from sending the driver's AWS keys to workers, because Ray would write them into its logs.

    Every machine has its own keys, in its environment or by its role. Fallback: Tune sends them.
    """
    cache = _module("tune.execution.class_cache")
    names = getattr(cache, "ENV_VARS_TO_PROPAGATE", ())
    kept = {"ENV_VARS_TO_PROPAGATE": {name for name in names if not name.startswith("AWS_")}}
    with _replaced(cache, kept):
        yield
