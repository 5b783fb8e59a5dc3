"""Kernels for the CPU, compiled by Numba where it is installed; else, plain torch computes the same.

A kernel loops over rows in plain Python over NumPy arrays, which are the tensors' own memory. It stands in a module
of its own, imported when a call first needs it. Numba keeps compiled kernels on disk beside their module and looks at
that module alone to see whether they are still true, so that a kernel calls nothing from other modules of ours.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

__all__ = ["compiled", "compiled_with", "in_parts", "takes_on_cpu"]

F = TypeVar("F", bound=Callable[..., object])

DTYPES = (torch.float32, torch.float64)


def compiled(function: F) -> F:
    """The function as machine code without the interpreter's lock; kept on disk if there is a place for it."""
    return compiled_with()(function)


def compiled_with(*fastmath: str, counting: bool = True) -> Callable[[F], F]:
    """As :func:`compiled`, for functions that are given what LLVM or Numba should know.

    Args:
        fastmath: LLVM's leave for ``"reassoc"`` (sums in any order), ``"contract"`` and the like.
        counting: False for a function that makes no arrays, but for views of those it is given, and that returns
            none. It leaves out the counting of references, which costs more than the work on a short row, where this
            Numba has an option for it.
    """
    from numba import njit  # noqa: PLC0415  # an optional dependency
    from numba.core.options import DefaultOptions  # noqa: PLC0415

    # A division by 0 gives inf, as it does in torch.
    options: dict[str, object] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    if not counting and hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False

    def compile_function(function: F) -> F:
        try:
            kernel = njit(cache=True, **options)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written
            return cast("F", njit(**options)(function))
        _forget_what_cannot_be_read(kernel)
        return cast("F", kernel)

    return compile_function


def _forget_what_cannot_be_read(kernel: Any) -> None:
    """Clear what an earlier version of a module has left on disk, if its arguments were of a class that is gone.

    Numba keeps the names of such classes in the index of a function's machine code, which it reads before it looks
    whether that is still true.
    """
    cache: Any = getattr(kernel, "_cache", None)
    try:
        cache._cache_file._load_index()
    except (AttributeError, ImportError):
        if hasattr(cache, "flush"):
            cache.flush()


def takes_on_cpu(scores: Tensor) -> bool:
    """Whether kernels can have these scores: on the CPU, in float32 or float64, in eager mode, outside torch.func."""
    return (
        scores.device.type == "cpu"
        and scores.dtype in DTYPES
        and scores.layout == torch.strided
        and type(scores) in (Tensor, torch.nn.Parameter)  # not fake, not distributed over processes
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and _numba_is_there()
    )


@functools.cache
def _numba_is_there() -> bool:
    """Whether Numba can be imported; it asks for a NumPy that it knows."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"Numba is of no use, so that losses run in plain torch: {error}", stacklevel=2)
        return False
    return True


def in_parts(kernel: Callable[[int, int], None], rows: int, at_least: int) -> None:
    """Run a kernel over the rows ``[first, last)``, in as many threads as torch has, with no fewer rows in each."""
    threads = max(1, min(torch.get_num_threads(), rows // at_least))
    bounds = [rows * i // threads for i in range(threads + 1)]
    if threads == 1:
        kernel(0, rows)
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(kernel, *bounds[i : i + 2]) for i in range(1, threads)]
        kernel(*bounds[:2])
        for other in others:
            other.result()
