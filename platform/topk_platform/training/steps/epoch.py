"""An epoch under way, which can be left after any of its steps and gone on with, in another process too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from topk_platform.training.steps.batches import Batches

__all__ = ["Epoch", "never", "order_states"]


@dataclass
class Epoch:
    """What is left of an epoch, and what its steps have come to.

    Args:
        batches: Those to come; going on with them keeps what has been decoded ahead.
        orders: The states of the streams of orders when the epoch began, from which the same orders are drawn again.
        total: The sum of the losses of the samples that were seen, float64, ``()`` or ``(members,)``.
    """

    batches: Iterator[tuple[Tensor, Tensor]]
    orders: list[Tensor]
    total: Tensor


def never() -> bool:
    """Return False: of an epoch that is left at its end alone."""
    return False


def order_states(epoch: Epoch | None, batches: Sequence[Batches]) -> dict[str, Any]:
    """Return what the batches to come are drawn from again, as plain data: of the epoch under way, or of the next.

    Args:
        epoch: The one under way, or None.
        batches: Of each member.
    """
    if epoch is None:
        return {"orders": [one.order.get_state() for one in batches], "total": None}
    return {"orders": epoch.orders, "total": epoch.total.clone()}
