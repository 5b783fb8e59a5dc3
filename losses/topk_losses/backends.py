"""What computes the losses on a device: compiled kernels, where the package behind them is installed, or torch."""

from __future__ import annotations

import importlib.metadata

from topk_losses._kernels import compiled, dispatch

__all__ = ["backend"]


def backend(device: str = "cpu") -> str:
    """Return what computes the losses of tensors on a device, with its version.

    Losses without a kernel, and calls that no kernel takes, go through torch on every device. Two backends agree to
    rounding but not to the last bit, and the noised losses draw other noise from one seed.

    Args:
        device: A device's type, such as ``"cpu"`` or ``"cuda"``.

    Returns:
        ``"numba VERSION"`` on the CPU and ``"triton VERSION"`` on CUDA where these are installed, else ``"torch"``.

    Example:
        >>> backend("mps")
        'torch'
    """
    if device == "cpu" and compiled._numba_is_there():
        return f"numba {importlib.metadata.version('numba')}"
    if device == "cuda" and dispatch._triton_is_there():
        return f"triton {importlib.metadata.version('triton')}"
    return "torch"
