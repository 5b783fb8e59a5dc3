"""Kernels for the CPU, compiled by Numba where it is installed; else, plain torch computes the same.

A kernel loops over rows in plain Python over NumPy arrays, which are the tensors' own memory. Kernels stand in modules
of their own, which are imported when a call first needs them, since they import Numba.
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

__all__ = ["array", "compiled", "in_parts", "is_there", "refusal", "rows_per_thread"]

F = TypeVar("F", bound=Callable[..., object])

DTYPES = (torch.float32, torch.float64)
SCORES_PER_THREAD = 2**18  # with fewer, a thread costs more than it saves


@functools.cache
def is_there() -> bool:
    """Whether Numba can be imported; it asks for a NumPy that it knows."""
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except ImportError as error:
        warnings.warn(f"Numba is of no use, so that losses run in plain torch: {error}", stacklevel=2)
        return False
    return True


def refusal(scores: Tensor, dtypes: Sequence[torch.dtype] = DTYPES) -> str | None:
    """Why no kernel can have these scores: they take strided tensors on the CPU, in eager mode, outside torch.func."""
    if scores.device.type != "cpu":
        return "the scores are not on the CPU"
    if scores.dtype not in dtypes:
        return f"the kernels do not take {scores.dtype}"
    if scores.layout != torch.strided or type(scores) not in (Tensor, torch.nn.Parameter):
        return "the scores are no plain tensor"  # fake, sparse, or distributed over processes
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return "the call is inside torch.compile or torch.func"
    return None if is_there() else "Numba is not installed"


def compiled(*fastmath: str, counting: bool = True, inner: bool = False) -> Callable[[F], F]:
    """Decorate a function to be machine code that runs without the interpreter's lock, kept on disk once compiled.

    Args:
        fastmath: LLVM's leave for ``"reassoc"`` (sums in any order), ``"contract"`` and the like.
        counting: False for a function that makes no arrays, but for views of those it is given, and that returns
            none. It leaves out the counting of references, which costs more than the work on a short row, where this
            Numba has an option for it.
        inner: Whether kernels alone call the function. It then has no way in from Python, which is a good part of what
            there is to compile; called from there nonetheless, it takes the process down.
    """
    from numba import njit  # noqa: PLC0415  # an optional dependency
    from numba.core.options import DefaultOptions  # noqa: PLC0415

    from topk_losses._core.numba_cache import keep_on_disk  # noqa: PLC0415

    # A division by 0 gives inf, as it does in torch.
    options: dict[str, object] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}
    if not counting and hasattr(DefaultOptions, "_nrt"):
        options["_nrt"] = False

    def compile_function(function: F) -> F:
        kernel = njit(no_cpython_wrapper=inner, no_cfunc_wrapper=True, **options)(function)
        keep_on_disk(kernel)
        return cast("F", kernel)

    return compile_function


def array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy's, put in order first if it is not."""
    if tensor.requires_grad or tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    return tensor.contiguous().numpy()


def rows_per_thread(classes: int) -> int:
    """The fewest rows that are worth a thread."""
    return max(1, SCORES_PER_THREAD // classes)


def in_parts(kernel: Callable[[int, int], None], rows: int, at_least: int) -> None:
    """Run a kernel over the rows ``[first, last)``, in as many threads as torch has, with no fewer rows in each."""
    threads = max(1, min(torch.get_num_threads(), rows // at_least))
    if threads == 1:
        kernel(0, rows)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    others = [_pool(threads - 1).submit(kernel, *bounds[i : i + 2]) for i in range(1, threads)]
    try:
        kernel(*bounds[:2])
    finally:
        for other in others:
            other.result()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's, kept from one call to the next."""
    return ThreadPoolExecutor(threads, thread_name_prefix="topk_losses")


# The threads of a parent are not in a forked process.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)
