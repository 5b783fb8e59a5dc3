"""Which calls Triton's kernels take, and how they are launched.

They take CUDA tensors in float32, bfloat16 or float16 of moderate size, in eager mode. Plain torch computes all other
calls, and every call where Triton is missing or its kernels cannot be compiled or launched, with the same result.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from topk_losses._core.autograd import Rule

__all__ = [
    "block_of",
    "failure",
    "halves",
    "is_there",
    "launch",
    "launch_options",
    "refusal",
    "warps_of",
    "with_rows",
]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_CLASSES = 2**15  # a row has to fit into the registers of one program
WARNED: set[str] = set()  # losses whose kernels failed in this process; each is reported once


@functools.cache
def is_there() -> bool:
    """Whether Triton can be imported."""
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _device_is_able(index: int | None) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(index) >= (8, 0)


def refusal(scores: Tensor, target: Tensor, asked: bool = False) -> str | None:
    """Why no kernel takes these scores ``(N, L, ...)`` and this target; each loss checks K itself.

    If the user asks for Triton by name, its interpreter (``TRITON_INTERPRET=1``) runs the kernels on the CPU, slowly.
    """
    interpreted = asked and os.environ.get("TRITON_INTERPRET") == "1" and scores.is_cpu
    if not (scores.is_cuda or interpreted):
        return "the scores are not on a CUDA device"
    rules = (
        (scores.dtype in DTYPES, f"the kernels do not take {scores.dtype}"),
        (scores.shape[1] <= MOST_CLASSES, f"there are more than {MOST_CLASSES} classes"),
        (not target.is_floating_point(), "the targets are soft"),
        (target.device == scores.device, "the targets are on another device"),
        # Fake tensors and those distributed over devices have other types.
        (type(scores) in (Tensor, torch.nn.Parameter), "the scores are not a plain tensor"),
        (not torch.compiler.is_compiling(), "the call is inside torch.compile"),
        (torch._C._functorch.peek_interpreter_stack() is None, "the call is inside torch.func"),
        (is_there(), "Triton is not installed"),
        (interpreted or _device_is_able(scores.device.index), "the device's capability is below 8.0"),
    )
    return next((reason for holds, reason in rules if not holds), None)


def failure(rule: Rule[Any], name: str, scores: Tensor, *inputs: torch.dtype | None) -> str | None:
    """Why the kernels cannot be compiled or launched for rows like these; tried once for each kind, on one row.

    The trial comes before the call, so that a backward pass never lacks its kernel and no random numbers are wasted. It
    compiles what the call needs: kernels are not specialised for integers that vary between the calls of a kind. A
    failure is reported by a warning, once per loss.

    Args:
        rule: A rule that is equal for all calls with the same kernels: what is no compile-time constant is the same.
        name: The name of the loss.
        scores: ``(N, L)`` or ``(N, L, ...)``.
        *inputs: The dtype of each further input, None for a number.

    Raises:
        torch.OutOfMemoryError: or Triton's own error, if the device is out of memory, since the kernels are not at
            fault.
    """
    kind = (scores.shape[1], scores.dtype, scores.device, *inputs)
    return _failure(rule, name, *kind, with_gradient=torch.is_grad_enabled())


@functools.cache
def _failure(
    rule: Rule[Any],
    name: str,
    classes: int,
    dtype: torch.dtype,
    device: torch.device,
    *inputs: torch.dtype | None,
    with_gradient: bool,
) -> str | None:
    row = torch.zeros(1, classes, dtype=dtype, device=device)
    labels = torch.zeros((1,) if rule.complete else (1, 1), dtype=torch.int64, device=device)
    given = [0.0 if kind is None else torch.zeros(1, dtype=kind, device=device) for kind in inputs]
    try:
        losses, kept = rule.forward(row, labels, *given, with_gradient=with_gradient)
        if with_gradient:
            rule.backward(losses.mean().expand(1), row, labels, kept)
    except Exception as error:  # from Triton, its compilers, the driver or the file system
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            raise
        reason = f"{type(error).__name__}: {error}"
        if name not in WARNED:
            warnings.warn(
                f"Triton's kernels cannot run, so {name} runs in plain torch: {reason}", stacklevel=2
            )
            WARNED.add(name)
        return reason
    return None


def block_of(classes: int) -> int:
    """The smallest power of two that holds a row, at least 16."""
    return max(16, 1 << (classes - 1).bit_length())


def warps_of(block: int, scores_per_thread: int = 128) -> int:
    """The number of warps per row, 4 to 32, with so many scores per thread in between.

    Warps that share a row wait for each other, so few with many scores each are fast: on an H200, rows of 10,000
    scores took the smooth top-K SVM 300 µs with 4 warps and 371 µs with 32.
    """
    return min(max(block // (32 * scores_per_thread), 4), 32)


def launch_options(block: int, warps: int | None = None) -> dict[str, int | bool]:
    """The number of warps, and fused multiply-adds.

    Fused multiply-adds are set explicitly because Triton's default has changed between versions.
    """
    return {"num_warps": warps or warps_of(block), "enable_fp_fusion": True}


def launch(
    kernel: Any,
    rows: Tensor,
    *arguments: Any,
    block: int,
    parts: int = 1,
    warps: int | None = None,
    **constants: Any,
) -> None:
    """Run a kernel with one program, or with several ``parts``, for each of the rows ``(N, ...)``."""
    if rows.shape[0]:
        # Triton launches on the current device, which may differ from that of the rows.
        with torch.cuda.device(rows.device) if rows.is_cuda else nullcontext():
            grid = (rows.shape[0], parts)
            kernel[grid](*arguments, BLOCK=block, **constants, **launch_options(block, warps))


def with_rows(scores: Tensor) -> Tensor:
    """The scores ``(N, L)`` with the entries of each row contiguous."""
    return scores if scores.stride(1) == 1 else scores.contiguous()


def halves(value: float) -> tuple[float, float]:
    """A number as the sum of two float32, about 48 bits: kernels take no float64 arguments."""
    high = ctypes.c_float(value).value
    return high, value - high
