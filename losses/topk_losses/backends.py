"""The choice of the backend that computes the losses, and compiling its kernels before training.

The backends are Numba's or Triton's kernels where they are installed, or torch.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from topk_losses._core import numba, triton
from topk_losses._core.backends import BACKENDS, BackendChoice, Wanted, choices_of, wanted, wanting
from topk_losses._core.checks import check_dimension
from topk_losses.modules import (
    NoisedTopKHinge,
    SmoothTopKHinge,
    SmoothTopKSVM,
    SoftTopKLoss,
    SortingTopKCrossEntropy,
    TopKEntropy,
    TopKTransition,
)

__all__ = ["BackendChoice", "backend", "explain_backend", "use_backend", "warm_up"]

_IS_THERE: dict[str, Callable[[], bool]] = {"numba": numba.is_there, "triton": triton.is_there}
_OF_DEVICE = {"cpu": "numba", "cuda": "triton"}
K = 5


def backend(device: str = "cpu") -> str:
    """Return the backend that computes losses on a device, with its version.

    Losses without kernels, and calls that the kernels do not support, are computed by torch on every device. Backends
    agree up to rounding but not in every bit, and with the same seed they draw different noise for the noised losses.

    Args:
        device: The type of a device, such as ``"cpu"`` or ``"cuda"``.

    Returns:
        ``"numba VERSION"`` on the CPU and ``"triton VERSION"`` on CUDA, where these are installed and not excluded by
        :func:`use_backend`; else ``"torch"``.

    Example:
        >>> backend("mps")
        'torch'
    """
    name = _OF_DEVICE.get(device, "torch")
    if name == "torch" or wanted() not in ("auto", name) or not _IS_THERE[name]():
        return "torch"
    return f"{name} {importlib.metadata.version(name)}"


def use_backend(name: Wanted) -> AbstractContextManager[None]:
    """Compute losses with one backend, in a ``with`` block or in a decorated function.

    Calls that the backend's kernels do not support are still computed by torch. Calls that torch computes as fast, and
    that ``"auto"`` therefore leaves to torch, are computed by the kernels. The setting applies to the current thread.

    Args:
        name: ``"torch"``, ``"numba"`` (on the CPU), ``"triton"`` (on CUDA devices), or the default ``"auto"``: the
            kernels where they are installed and faster.

    Raises:
        ValueError: for other names, and for a backend that is not installed.

    Example:
        >>> import torch
        >>> from topk_losses import SmoothTopKSVM
        >>> with use_backend("torch"):
        ...     SmoothTopKSVM(k=2)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1]))
        tensor(0.7909)
    """
    if name not in BACKENDS:
        raise ValueError(f"name must be one of {', '.join(BACKENDS)}, got {name!r}")
    if name in _IS_THERE and not _IS_THERE[name]():
        raise ValueError(f"name must be a backend that is installed, got {name!r}, which is not")
    return wanting(name)


def explain_backend(loss: Callable[..., Any], *inputs: Any, **options: Any) -> list[BackendChoice]:
    """Call a loss, and return the backend of each operation with the reasons against the other backends.

    Args:
        loss: A loss of this package, as a module or a function, or anything that calls one.
        *inputs: The arguments of the call, such as scores and targets.
        **options: The keyword arguments of the call.

    Returns:
        One :class:`BackendChoice` per operation, in the order of the choices; none for a loss without kernels.

    Example:
        >>> import torch
        >>> from topk_losses import SmoothTopKSVM
        >>> scores = torch.zeros(1, 3, dtype=torch.float64)
        >>> [choice] = explain_backend(SmoothTopKSVM(k=2), scores, torch.tensor([1]))
        >>> choice.backend, choice.refusals["numba"]
        ('torch', 'the kernels do not take torch.float64')
    """
    return choices_of(lambda: loss(*inputs, **options))


COMPILED: tuple[Callable[[int], Callable[[Tensor, Tensor], Tensor]], ...] = (
    *(SmoothTopKSVM, TopKTransition, SmoothTopKHinge, TopKEntropy, SoftTopKLoss, SortingTopKCrossEntropy),
)


def warm_up(
    *losses: Callable[[Tensor, Tensor], Tensor],
    classes: int = 1000,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> None:
    """Compile the kernels of losses, or read them from disk, now rather than at the first training step.

    In a new installation the first call compiles for up to 15 seconds per loss. Later processes read the compiled
    kernels from disk; the environment variable ``TOPK_LOSSES_CACHE`` names the folder. Call it before worker processes
    start, so that they do not all compile the same kernels. The state of random generators does not change.

    Args:
        *losses: Losses of this package; by default all losses with kernels.
        classes: Number of classes in training. Triton compiles anew for another number, Numba does not.
        dtype: Dtype of the scores in training.
        device: Device of the scores in training.

    Raises:
        ValueError: For ``classes`` below 1, and for arguments that the losses reject.

    Example:
        >>> from topk_losses import TopKTransition
        >>> warm_up(TopKTransition(k=3), classes=100)
    """
    check_dimension("classes", classes)
    k = max(1, min(K, classes - 1))
    kernels = [loss_of(k) for loss_of in COMPILED]
    noised = [NoisedTopKHinge(k), NoisedTopKHinge(k, samples=None)]
    target = torch.zeros(2, dtype=torch.int64, device=device)
    for loss in losses or (*kernels, *noised):
        scores = torch.zeros(2, classes, dtype=dtype, device=device, requires_grad=True)
        devices = [scores.device] if scores.is_cuda else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            loss(scores, target).sum().backward()  # type: ignore[no-untyped-call]
