"""Compiling and running CPU kernels with Numba, where it is installed; otherwise plain torch computes the same.

A kernel is a Python function that loops over the rows of NumPy arrays, which share the tensors' memory. Kernels are in
modules of their own, imported when a call first needs them, because those modules import Numba.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from topk_losses._core.backends import lazily

__all__ = ["array", "compiled", "empty", "in_parts", "is_there", "numbers", "over_rows", "refusal"]

F = TypeVar("F", bound=Callable[..., object])

_NUMPY = lazily("numpy")  # NumPy is installed wherever Numba is

DTYPES = (torch.float32, torch.float64)
SCORES_PER_THREAD = 2**18  # the fewest scores for which a thread saves more time than it costs


@functools.cache
def is_there() -> bool:
    """Whether Numba can be imported; it raises ``ImportError`` for versions of NumPy that it does not support."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"Numba cannot be imported, so losses run in plain torch: {error}", stacklevel=2)
        return False
    return True


def refusal(scores: Tensor, dtypes: Sequence[torch.dtype] = DTYPES) -> str | None:
    """Why no kernel takes these scores: kernels need strided CPU tensors, in eager mode, outside ``torch.func``."""
    if not scores.is_cpu:
        return "the scores are not on the CPU"
    if scores.dtype not in dtypes:
        return f"the kernels do not take {scores.dtype}"
    if scores.layout != torch.strided or type(scores) not in (Tensor, torch.nn.Parameter):
        return "the scores are not a plain tensor"  # fake, sparse, or distributed over processes
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "the call is inside torch.func"
    return None if is_there() else "Numba is not installed"


def compiled(*fastmath: str, counting: bool = True, inner: bool = False) -> Callable[[F], F]:
    """Decorate a function to be compiled; it releases the interpreter's lock, and its machine code is kept on disk.

    Args:
        fastmath: LLVM's fast-math flags, such as ``"reassoc"`` (sums in any order) and ``"contract"``.
        counting: False for a function that makes and returns no arrays other than views of its arguments. Reference
            counting is then left out where this version of Numba allows it; on a short row it costs more than the work
            itself.
        inner: Whether only kernels call the function. It is then compiled without an entry point for Python, which
            saves much of the compile time. Calling it from Python crashes the process.
    """
    from numba import njit  # noqa: PLC0415  # an optional dependency
    from numba.core.options import DefaultOptions  # noqa: PLC0415

    from topk_losses._core.numba_cache import keep_on_disk  # noqa: PLC0415

    # error_model "numpy": a division by 0 gives inf, as in torch.
    options: dict[str, object] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    if not counting and hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False

    def compile_function(function: F) -> F:
        kernel = njit(no_cpython_wrapper=inner, no_cfunc_wrapper=True, **options)(function)
        keep_on_disk(kernel)
        return cast("F", kernel)

    return compile_function


def array(tensor: Tensor) -> Any:
    """The tensor as a NumPy array that shares its memory; a tensor that is not contiguous is copied first."""
    return tensor.contiguous().numpy(force=True)  # resolves what a view negates


def numbers(values: float | Tensor, dtype: torch.dtype = torch.float64) -> Any:
    """One number, or one for each row, as a NumPy array."""
    if isinstance(values, Tensor):
        return array(values.to(dtype).reshape(-1))
    return _number(float(values), dtype)


@functools.lru_cache(64)
def _number(value: float, dtype: torch.dtype) -> Any:
    return torch.tensor([value], dtype=dtype, device="cpu").numpy()


def empty(dtype: Any, *shape: int) -> Any:
    """Return a new array of NumPy's. It and ``torch.from_numpy`` take half the time of a tensor and its array."""
    return _NUMPY().empty(shape, dtype)


def in_parts(kernel: Callable[[int, int], None], rows: int, at_least: int) -> None:
    """Run a kernel on parts ``[first, last)`` of the rows, in up to torch's number of threads.

    Each thread gets at least ``at_least`` rows.
    """
    threads = min(torch.get_num_threads(), rows // at_least)
    if threads <= 1:
        kernel(0, rows)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    others = [_pool(threads - 1).submit(kernel, *bounds[i : i + 2]) for i in range(1, threads)]
    try:
        kernel(*bounds[:2])
    finally:
        for other in others:
            other.result()


def over_rows(kernel: Callable[[int, int], None], scores: Tensor) -> None:
    """Run a kernel on parts ``[first, last)`` of the rows of scores ``(N, L)``, in as many threads as pay."""
    rows, classes = scores.shape
    in_parts(kernel, rows, max(1, SCORES_PER_THREAD // classes))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads besides the caller's, reused by later calls."""
    return ThreadPoolExecutor(threads, thread_name_prefix="topk_losses")


# A forked process does not have its parent's threads, so it must make a pool of its own.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
