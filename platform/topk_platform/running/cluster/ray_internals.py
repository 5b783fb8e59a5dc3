"""Private parts of Ray, used where there is no public interface. If a version lacks a name, its fallback is used.

Nothing else in the platform uses a private name of Ray or Ray Tune.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import psutil

from topk_platform.running.cluster.driver_process import in_variables

__all__ = ["known_heads", "leave", "messages_on_stderr", "on_loopback", "reason_in", "without_keys"]

# This environment variable keeps Ray on loopback if it is 0 when Ray is imported.
_CLUSTER_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"

# The autoscaler, the log monitor, and the dashboard's process, which starts even without a dashboard. A Ray of our own
# needs none of them, and each takes seconds to import Ray.
_NEEDLESS = ("start_monitor", "start_log_monitor", "start_api_server")
_ADDRESS = "--gcs-address="
_LENGTH = 600
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_GUESSES = " Some common causes include"  # the beginning of a paragraph of guesses


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
def on_loopback() -> Iterator[None]:
    """Let a Ray that starts within the block be for this machine alone, as Ray is by itself on Windows and macOS.

    It listens on loopback only: on Linux, Ray replaces a given loopback address by an address that other machines
    reach, and listens on all addresses. Fallback: the environment variable, which counts for processes that import Ray
    within the block. It also starts without the processes that a Ray on one machine does not need, which saves two to
    three seconds of a core at every start. Fallback: they start.
    """
    constants, node = _module("_private.ray_constants"), getattr(_module("_private.node"), "Node", None)
    needless = dict.fromkeys(_NEEDLESS, lambda *_arguments, **_options: None)
    with (
        in_variables({_CLUSTER_VARIABLE: "0"}),
        _replaced(constants, {"ENABLE_RAY_CLUSTER": False}),
        _replaced(node, needless),
    ):
        yield


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Let Ray's messages go to stderr for as long as the block lasts, so that stdout holds only the command's output.

    Ray prints its messages, such as those about lost processes, on stdout between tables and lines of JSON, even with
    ``log_to_driver=False``. Fallback: these messages stay on stdout.
    """
    worker = _module("_private.worker")
    to_stdout: Any = getattr(worker, "print_to_stdstream", None)

    def to_stderr(data: Mapping[str, Any], **options: Any) -> None:
        to_stdout({**data, "is_err": True}, **options)

    with _replaced(worker, {"print_to_stdstream": to_stderr}):
        yield


def leave() -> None:
    """Leave Ray. If this process has started Ray, kill Ray's processes at once instead of asking them to end.

    This saves four seconds. Fallback: Ray asks them to end, waits and kills them.
    """
    node = getattr(_module("_private.worker"), "_global_node", None)
    for infos in getattr(node, "all_processes", {}).values():
        for info in infos:
            info.process.terminate = info.process.kill
    import_module("ray").shutdown()


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


def reason_in(text: str) -> str:
    r"""Return the last exception of a traceback with its whole message, without Ray's details and guesses.

    Details are indented lines such as an actor's class and id.

    Args:
        text: A traceback, or the message of one of Ray's exceptions.

    Returns:
        One line of at most 600 characters; "no reason is known" if the text is empty.

    Example:
        >>> reason_in("The actor died.\n\tclass_name: Worker\nIts owner died.\nThe actor never ran.")
        'The actor died. Its owner died. The actor never ran.'
        >>> reason_in("ray::train()\n  File 'train.py'\nValueError: no images")
        'ValueError: no images'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line[0].isspace()]
    begins = [number for number, line in enumerate(lines) if _EXCEPTION.match(line)]
    last = lines[begins[-1] :] if begins else lines
    return " ".join(dict.fromkeys(last)).partition(_GUESSES)[0][:_LENGTH] or "no reason is known"


def known_heads() -> set[str]:
    """Return the addresses of the Rays that run on this machine: their raylets have them in their command lines."""
    processes = psutil.process_iter(["name", "cmdline"])
    words = (
        word for each in processes if each.info["name"] == "raylet" for word in each.info["cmdline"] or ()
    )
    return {word.removeprefix(_ADDRESS) for word in words if word.startswith(_ADDRESS)}
