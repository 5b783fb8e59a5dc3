"""Kept networks for plots: the scores that a confirmed run's network gives to inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.records import Row, Store, read_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

__all__ = ["kept_network"]


def kept_network(store: Store, row: Row) -> Callable[[Tensor], Tensor] | None:
    """Return a confirmed run's network as a function from inputs ``(n, *shape)`` to scores ``(n, L)``.

    Args:
        store: The study's folder.
        row: The run's row of the ledger.

    Returns:
        The function, or None if no network was kept.

    Raises:
        UserError: if the function that builds the network cannot be found, or the network cannot be read.
    """
    import torch  # noqa: PLC0415 - seconds of import
    from safetensors.torch import load  # noqa: PLC0415 - as above

    from topk_platform.models import architecture_of, build_model  # noqa: PLC0415 - as above

    saved = read_model(store, row)
    if saved is None:
        return None
    arm, takes = saved.trial.arm, saved.inputs
    with torch.random.fork_rng(devices=[]):
        network = build_model(architecture_of(arm.model), takes.shape, takes.classes, arm.loss.head)
    network.load_state_dict(load(saved.content))
    network.eval()

    @torch.no_grad()
    def scores(inputs: Tensor) -> Tensor:
        result: Tensor = network(inputs).float()
        return result

    return scores
