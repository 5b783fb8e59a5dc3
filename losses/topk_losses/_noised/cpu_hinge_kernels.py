"""CPU kernels of the hinge and its gradient, for draws made by ``cpu_kernels.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from topk_losses._core.numba import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
    Integers: TypeAlias = NDArray[np.int64]

__all__ = ["hinge_gradients", "hinges"]


@compiled()
def hinges(
    scores: Floats,
    labels: Integers,
    margins: Floats,
    ignored: int,
    classes: Integers,
    noise: Floats,
    losses: Floats,
    active: Floats,
) -> None:
    """Write the losses ``(N,)`` and the derivative of the hinge function ``(N,)``, for the draws of ``draw_rows``.

    The loss is 0 for ignored labels and +inf for labels whose score is -inf, both without gradient. Margins are
    ``(1,)`` or ``(N,)``.
    """
    for n in range(len(scores)):
        losses[n], active[n] = 0.0, 0.0
        if labels[n] == ignored:
            continue
        own = float(scores[n, labels[n]])
        if own == -np.inf:
            losses[n] = np.inf
            continue
        ahead = 0.0
        for c in classes[n]:
            if c >= 0:
                ahead += scores[n, c] - own
        argument = margins[n % len(margins)] + ahead / classes.shape[1] + noise[n]
        if not argument <= 0:
            losses[n], active[n] = argument, 1.0


@compiled()
def hinge_gradients(
    labels: Integers, classes: Integers, active: Floats, gradients: Floats, out: Floats
) -> None:
    """Add the gradients to ``out`` ``(N, L)``: each class's share of the draws, minus 1 for the label, if active."""
    shares = np.zeros(out.shape[1])
    for n in range(len(out)):
        if active[n] == 0:
            continue
        slope = active[n] * gradients[n]
        shares[labels[n]] -= slope
        for c in classes[n]:
            if c >= 0:
                shares[c] += slope / classes.shape[1]
        out[n, labels[n]] = shares[labels[n]]
        shares[labels[n]] = 0.0
        for c in classes[n]:
            if c >= 0 and c != labels[n]:
                out[n, c] += shares[c]
                shares[c] = 0.0
