"""Stochastic depth: residual blocks that are left out at random in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from topk_platform.errors import UserError

__all__ = ["drop_blocks", "dropped"]

_LAST_OF_BRANCH = {"_BasicBlock": "norm2", "BasicBlock": "bn2", "Bottleneck": "bn3"}
_OWN = "StochasticDepth"  # torchvision's module, in the networks whose papers use it


def dropped(branch: Tensor, rate: float) -> Tensor:
    """Return a branch's output, set to 0 for each sample with probability ``rate``, else divided by ``1 - rate``.

    Args:
        branch: ``(n, ...)``.
        rate: In ``[0, 1)``.

    Source:
        Huang et al., Deep Networks with Stochastic Depth, ECCV 2016, scaled in training as torchvision does.
    """
    kept = torch.empty((len(branch), *(1,) * (branch.ndim - 1)), dtype=branch.dtype, device=branch.device)
    return branch * kept.bernoulli_(1 - rate).div_(1 - rate)


def drop_blocks(model: nn.Module, rate: float) -> None:
    """Let a network leave out residual blocks in training: block l of L with probability ``rate · l / L``.

    Args:
        model: A network with residual blocks of ours or of torchvision. It is changed in place.
        rate: In ``[0, 1)``.

    Raises:
        UserError: if the network has no residual blocks.
    """
    own = [module for module in model.modules() if type(module).__name__ == _OWN]
    blocks = [module for module in model.modules() if type(module).__name__ in _LAST_OF_BRANCH]
    if not own and not blocks:
        raise UserError(
            f"Recipe.stochastic_depth needs a network with residual blocks, such as resnet18_small or torchvision's "
            f"ResNets, got {type(model).__name__} without any"
        )
    for number, module in enumerate(own, 1):
        module.p = rate * number / len(own)  # type: ignore[assignment]
    for number, block in enumerate([] if own else blocks, 1):
        _drop(block, rate * number / len(blocks))


def _drop(block: nn.Module, rate: float) -> None:
    def drop(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        # The mode of the block decides: while statistics are recomputed, only its last layer is in training mode.
        return dropped(output, rate) if block.training else output

    block.get_submodule(_LAST_OF_BRANCH[type(block).__name__]).register_forward_hook(drop)
