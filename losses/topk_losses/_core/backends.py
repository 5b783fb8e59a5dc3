"""Chooses the backend that computes a call, and records the reasons.

Every rule asks once per call, and so does each operation on rows that several rules share. The backends with kernels
for the operation are tried in order, and the first that does not refuse the call is taken. torch comes last and never
refuses.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import torch

__all__ = [
    "BACKENDS",
    "BackendChoice",
    "Refusal",
    "Wanted",
    "choices_of",
    "choose",
    "lazily",
    "wanted",
    "wanting",
]

Wanted = Literal["auto", "torch", "numba", "triton"]
BACKENDS: tuple[Wanted, ...] = ("auto", "torch", "numba", "triton")

Refusal = Callable[[bool], str | None]
"""Returns why a backend's kernels do not support a call, or None if they do.

Its argument says whether the user asked for this backend by name. If so, the kernels also take calls that torch
computes as fast.
"""

_WANTED: ContextVar[Wanted] = ContextVar("topk_losses.backend", default="auto")
_CHOICES: ContextVar[list[BackendChoice] | None] = ContextVar("topk_losses.choices", default=None)


def lazily(module: str) -> Callable[[], Any]:
    """A function that returns a module of kernels; its first call imports the module, and with it a compiler."""
    return functools.cache(functools.partial(importlib.import_module, module))


class BackendChoice(NamedTuple):
    """The backend that computes one operation of a call.

    Attributes:
        operation: The name of the loss, or of a part of it such as ``"largest"``, the K largest scores.
        backend: ``"torch"``, ``"numba"`` or ``"triton"``.
        refusals: For each backend that was tried before this one, why it does not compute the operation.
    """

    operation: str
    backend: str
    refusals: dict[str, str]


def choose(operation: str, **refusals: Refusal) -> str:
    """Return the first backend that does not refuse the call, or ``"torch"``."""
    if torch.compiler.is_compiling():  # graphs consist of torch's operations
        return "torch"
    name = _WANTED.get()
    reasons: dict[str, str] = {}
    for backend, refusal in refusals.items():
        reason = refusal(name == backend) if name in ("auto", backend) else f"use_backend({name!r})"
        if reason is None:
            return _noted(operation, backend, reasons)
        reasons[backend] = reason
    return _noted(operation, "torch", reasons)


def _noted(operation: str, backend: str, reasons: dict[str, str]) -> str:
    choices = _CHOICES.get()
    if choices is not None:
        choices.append(BackendChoice(operation, backend, reasons))
    return backend


@contextmanager
def wanting(backend: Wanted) -> Iterator[None]:
    """In this context and thread, use no other backend's kernels."""
    token = _WANTED.set(backend)
    try:
        yield
    finally:
        _WANTED.reset(token)


def wanted() -> Wanted:
    """Return the backend that this context asks for."""
    return _WANTED.get()


def choices_of(call: Callable[[], Any]) -> list[BackendChoice]:
    """Make a call, and return the choices of backends made during it."""
    choices: list[BackendChoice] = []
    token = _CHOICES.set(choices)
    try:
        call()
    finally:
        _CHOICES.reset(token)
    return choices
