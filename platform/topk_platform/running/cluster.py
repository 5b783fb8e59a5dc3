"""A Ray cluster to run on: one of this machine's own, or one that answers at an address."""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import signal
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import ray
from ray._private import ray_constants, services
from ray._private.authentication.authentication_token_setup import generate_and_save_token
from ray.exceptions import RayError

from topk_platform.code_version import user_modules
from topk_platform.errors import ClusterError, reason
from topk_platform.running.address import is_loopback
from topk_platform.running.capacity import size_told, slots
from topk_platform.running.devices import slices_here
from topk_platform.running.here import local_cpus
from topk_platform.running.interrupts import interrupts_wait
from topk_platform.running.lean import lean
from topk_platform.running.messages import messages_on_stderr
from topk_platform.running.patience import Patience
from topk_platform.running.reaching import check_answers, listening
from topk_platform.specs import Study

__all__ = ["connected", "joined"]

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_COLOR_PREFIX": "0",  # what Ray says of lost processes is kept in files as a rule
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # a user's relative paths mean the folder that the command runs in
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
# Of a Ray of our own: where its driver was killed, its agents look for its head for so long, by default a minute.
_OURS = {"RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
_LOOPBACK = "127.0.0.1"
_OBJECT_STORE_BYTES = 200 * 2**20


@contextmanager
def connected(
    study: Study, address: str | None, workers: int | None, patience: Patience | None = None
) -> Iterator[int]:
    """Connect to Ray for as long as the block lasts and yield how many trials may run at once.

    Without an address Ray starts on this machine, listening on loopback alone, without dashboard and usage
    statistics, and is stopped at the end. A cluster at a loopback address is joined at that address; Ray alone would
    use this machine's network address. A Ray that the caller has already connected to is used as it is and left
    running.

    Args:
        study: The study, which says what a trial needs.
        address: ``host:port`` or ``auto``.
        workers: How many trials may run at once; by default as many as the cluster's cores or GPUs allow. A cluster
            with an autoscaler grows up to this number.
        patience: How long to wait for a head that does not listen yet, and for a node on which a trial fits; by
            default a minute.

    Raises:
        ClusterError: if nothing listens at the address, no Ray cluster answers there in time, or no trial fits on any
            node.
    """
    patience = patience or Patience()
    ours = not ray.is_initialized()
    with _environment(_QUIET), messages_on_stderr() if ours else nullcontext():
        try:
            if ours:
                _connect(study, address, workers, patience)
            yield slots(study, workers, may_grow=address is not None, patience=patience)
        finally:
            if ours:
                _shut_down()


@contextmanager
def joined(address: str, study: Study | None = None) -> Iterator[None]:
    """Connect to a Ray cluster for as long as the block lasts, whether or not trials fit on it; start nothing there.

    Args:
        address: ``host:port`` or ``auto``.
        study: The study whose modules are sent to workers, beside ours.

    Raises:
        ClusterError: if no cluster answers at the address, as :func:`connected`.
    """
    with _environment(_QUIET), messages_on_stderr():
        try:
            _join(listening(address), study)
            yield
        finally:
            _shut_down()


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


@contextmanager
def _sheltered() -> Iterator[None]:
    """Let processes that start meanwhile not hear SIGTERM, which SLURM sends to all of a job's.

    The driver stops them in its own time, see :func:`_shut_down`; without them it would wait a minute for an answer.
    Trials' own processes hear it again, see :class:`TrialActor`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _shut_down() -> None:
    """Leave Ray, and end the processes that were started for it here, and those that they started.

    Ray asks its processes by SIGTERM, which they do not hear, waits for a second and then kills them: here it kills
    them at once. That is four seconds less, and they hold nothing that is kept. The agents of a raylet that was killed
    would stay for most of a minute, looking for somebody to tell of it.
    """
    node = ray._private.worker._global_node
    infos = [info for infos in node.all_processes.values() for info in infos] if node is not None else []
    started = [info.process for info in infos]
    left = [child for process in started for child in _descendants(process.pid)]
    for process in started:
        process.terminate = process.kill
    ray.shutdown()
    for child in left:
        with suppress(services.psutil.Error):
            child.kill()


def _descendants(pid: int) -> list[Any]:
    try:
        found: list[Any] = services.psutil.Process(pid).children(recursive=True)  # psutil as Ray brings it
    except services.psutil.Error:  # it has ended meanwhile
        return []
    return found


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a Ray that starts meanwhile listen on loopback alone, as Ray does by itself where it knows no clusters.

    Elsewhere it replaces a loopback address that it is given by one that others reach, and listens everywhere. The
    variable that says otherwise is read when Ray is imported, which the caller may have done before.
    """
    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@cache  # Ray keeps the first token that a process has
def _token_where_none_is_kept() -> Mapping[str, str]:
    """Return a token for a Ray of our own where the home folder, in which Ray keeps one, cannot be written.

    Elsewhere one is made there if there is none, for its owner alone: Ray writes it as the umask says.
    """
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        kept = Path.home() / ".ray"
        kept.mkdir(exist_ok=True)
        if (kept / "auth_token").exists():
            return {}
        if os.access(kept, os.W_OK):
            _make_token()
            return {}
    return {"RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _make_token() -> None:
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys() or os.environ.get(
        "RAY_AUTH_MODE"
    ) == "disabled":
        return
    before = os.umask(0o077)
    try:
        generate_and_save_token()
    finally:
        os.umask(before)


def _connect(study: Study, address: str | None, workers: int | None, patience: Patience) -> None:
    if address is None:
        # Ray counts GPUs, where trials get slices of them by the names that its processes inherit from here.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        slices = slices_here(visible) if study.device == "cuda" else []
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(slices)} if slices else {}
        ours = {**_OURS, **_token_where_none_is_kept(), **devices}
        with _environment(ours), interrupts_wait(), _on_loopback(), lean(), _sheltered():
            ray.init(
                _node_ip_address=_LOOPBACK,
                address="local",  # else RAY_ADDRESS, or a Ray that happens to run here, would be joined
                num_cpus=max(local_cpus(), (workers or 1) * study.threads),
                num_gpus=len(slices) or None,
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
    else:
        _join(patience.until(partial(listening, address)), study)
        patience.say(f"joined the Ray cluster at {size_told()}")


def _join(address: str, study: Study | None) -> None:
    check_answers(address)
    modules = {"py_modules": [str(path) for path in _shipped(study)], "excludes": ["__pycache__", ".git"]}
    try:
        with interrupts_wait(), _on_loopback() if is_loopback(address) else nullcontext():
            ray.init(address=address, runtime_env=modules, logging_level=logging.ERROR, log_to_driver=False)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise ClusterError(f"the Ray cluster at {address!r} cannot be used: {reason(error)}") from error


def _shipped(study: Study | None) -> list[Path]:
    """Return the packages and modules that workers elsewhere need: ours, and those of the user's behind a study.

    Packages installed with pip, such as torchvision for ``torchvision.models:resnet18``, must be installed on the
    cluster.
    """
    names = {"topk_losses", "topk_platform"}
    for arm in () if study is None else study.arms:
        names |= {name.partition(".")[0] for name in user_modules(arm)}
    places = {name: _location(importlib.util.find_spec(name)) for name in sorted(names)}
    return [
        path for name, path in places.items() if path and (name.startswith("topk_") or not _installed(path))
    ]


def _location(spec: ModuleSpec | None) -> Path | None:
    if spec is None:
        return None
    place = next(iter(spec.submodule_search_locations or ()), spec.origin)
    return None if place is None else Path(place).absolute()


def _installed(path: Path) -> bool:
    roots = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(path.is_relative_to(root) for root in roots)
