"""The questions to a machine, and its answers; torch may be missing there."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from topk_platform.errors import StoreError, reason
from topk_platform.records import Store
from topk_platform.references import import_reference
from topk_platform.running.preflight.nodes.gpus import Gpu, gpus_here
from topk_platform.specs import Regime

__all__ = ["ABSENT", "Facts", "Question", "examine", "now"]

T = TypeVar("T")

ABSENT = "not installed"
"""Stands for the version of a package that is not installed."""


@dataclass(frozen=True)
class Question:
    """What a machine is asked.

    Args:
        packages: The packages whose versions are asked for.
        device: The device on which the trials are to run, ``"cpu"`` or ``"cuda"``.
        references: Objects that must be importable, as ``package.module:attribute``.
        regimes: The regimes whose data must be there.
        data: The folder of datasets.
        store: The address of the store; empty if there is none.
        token: The name and content of a file in the store, beside which the machine writes a reply; empty for none.
        gpus: How many GPUs Ray counts on the machine.
    """

    packages: Sequence[str]
    device: str = "cpu"
    references: Sequence[str] = ()
    regimes: Sequence[Regime] = ()
    data: str = ""
    store: str = ""
    token: str = ""
    gpus: float = 0.0


@dataclass(frozen=True)
class Facts:
    """A machine's answers; ``problems`` explains those that are missing.

    Args:
        python: Python's version.
        packages: Versions by name; :data:`ABSENT` for a package that is not installed.
        environment: The properties that decide the last bits of a training, see
            :func:`topk_platform.training.environment`.
        code: The hash of the sources of the losses and the platform.
        data: Fingerprints by regime.
        reply: The file that was written beside the token; empty if the token was not there.
        gpus: Its GPUs.
        free: Free bytes on the disks of important folders, by their purpose.
        problems: Error texts by what was asked: ``"environment"``, ``"code"``, ``"store"``, ``"gpus"``,
            ``"reference NAME"``, ``"data NAME"``.
    """

    python: str
    packages: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    reply: str = ""
    gpus: Sequence[Gpu] = ()
    free: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def now() -> float:
    """Return the machine's time, in seconds since 1970."""
    return time.time()


def examine(question: Question) -> Facts:
    """Return this machine's answers. Writes one file into the store, if one was given, and nothing else."""
    problems: dict[str, str] = {}

    def attempt(name: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - the next question is asked after any error
            problems[name] = reason(error)
            return otherwise

    none: list[Gpu] = []
    gpus = attempt("gpus", lambda: gpus_here(question.gpus), none)
    for name in question.references:
        attempt(f"reference {name}", partial(import_reference, name), None)
    return Facts(
        python=platform.python_version(),
        packages={name: _version(name) for name in question.packages},
        environment=attempt("environment", lambda: _environment(question.device, gpus), {}),
        code=attempt("code", _code, ""),
        data={
            regime.name: attempt(f"data {regime.name}", partial(_fingerprint, regime, question.data), "")
            for regime in question.regimes
        },
        reply=attempt("store", lambda: _reply(question), ""),
        gpus=gpus,
        free=_free(question),
        problems=problems,
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def _environment(device: str, gpus: Sequence[Gpu]) -> dict[str, str]:
    from topk_platform.training import environment  # noqa: PLC0415 - torch, which may be missing

    if device == "cpu":
        return environment(device)
    return {**environment("cpu"), **(dict(gpus[0].environment) if gpus else {})}


def _code() -> str:
    """Return a hash of every byte of the sources of the losses and of the platform."""
    state = hashlib.sha256()
    for package in ("topk_losses", "topk_platform"):
        root = Path(str(importlib.util.find_spec(package).origin)).parent  # type: ignore[union-attr]
        for path in sorted(root.rglob("*.py")):
            state.update(path.relative_to(root.parent).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()[:12]


def _fingerprint(regime: Regime, folder: str) -> str:
    from topk_platform.data import data_at, load  # noqa: PLC0415 - torch

    with data_at(folder or None):
        return load(regime).fingerprint


def _reply(question: Question) -> str:
    """Read the token, write its content into a file of this process's own, and return that file's name."""
    if not question.token:
        return ""
    store, name = Store.open(question.store), f"{question.token}-{platform.node()}-{os.getpid()}"
    try:
        seen = store.read(question.token)
    except FileNotFoundError:
        raise StoreError("the file that the driver wrote a moment ago is missing there") from None
    store.write(name, seen)
    return name


def _free(question: Question) -> dict[str, int]:
    folders = {"temporary files": tempfile.gettempdir(), "datasets": question.data}
    if question.store and "://" not in question.store:
        folders["the store"] = question.store
    return {
        name: shutil.disk_usage(path).free for name, path in folders.items() if Path(path or "?").is_dir()
    }
