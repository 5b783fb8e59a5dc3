"""The current epoch, which can pause after any step and continue later, also in another process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from topk_platform.training.steps.batches import Batches

__all__ = ["Epoch", "never_pause", "order_states"]


@dataclass
class Epoch:
    """The batches that are left of an epoch, and the sum of its losses so far.

    Args:
        batches: The batches to come, each some tensors. Keeping them also keeps the images that are already decoded.
        orders: The states of the streams of orders at the epoch's start, from which the same orders are drawn again.
        total: The sum of the losses of the samples so far, float64, ``()`` or ``(members,)``.
    """

    batches: Iterator[tuple[Tensor, ...]]
    orders: list[Tensor]
    total: Tensor


def never_pause() -> bool:
    """Return False, so that an epoch pauses at its end only."""
    return False


def order_states(epoch: Epoch | None, batches: Sequence[Batches]) -> dict[str, Any]:
    """Return the states from which the batches of the current epoch, or of the next one, are drawn again.

    Args:
        epoch: The current epoch, or None between two epochs.
        batches: The batches of each member.
    """
    if epoch is None:
        return {"orders": [one.order.get_state() for one in batches], "total": None}
    return {"orders": epoch.orders, "total": epoch.total.clone()}
