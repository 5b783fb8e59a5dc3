"""Early-learning regularisation as a module: it remembers each training sample."""

from __future__ import annotations

from dataclasses import field

import torch
from torch import Tensor

from topk_losses import functional
from topk_losses._core.checks import bounds_of, check_scores, check_target, values_are_readable
from topk_losses._core.reduction import Shared
from topk_losses._core.shapes import computing, softmax
from topk_losses.modules._base import Dimension, Loss, NotNegative, Share, module_of

__all__ = ["EarlyLearning"]


@module_of(functional.early_learning)
class EarlyLearning(Loss):
    r"""Early-learning regularisation, see :func:`~topk_losses.functional.early_learning`.

    The buffer ``memory`` holds t for each training sample, ``(samples, classes)`` in float32, 0 at first. In training
    mode each call first updates the rows of its samples,

    .. math:: t \leftarrow \beta t + (1 - \beta) \, p,

    and then computes the loss with them. A prediction that is not finite changes nothing. In evaluation mode
    (``loss.eval()``) no row changes. ``state_dict`` has the memory, so that training can go on from a checkpoint.

    Of several processes each has a memory of its own, with the samples that it saw. Where activation checkpointing
    computes the loss once more during the backward pass, no row changes a second time.

    Args:
        samples: The number of training samples.
        classes: L.
        strength: λ, at least 0.
        beta: β, at least 0 and below 1.

    Raises:
        ValueError: for the arguments that :func:`~topk_losses.functional.early_learning` rejects, β outside ``[0, 1)``,
            and an index that is missing in training mode, has another shape than the target, is no int64 or int32, or
            is out of range (on the CPU).

    Example:
        >>> import torch
        >>> loss = EarlyLearning(samples=2, classes=3)
        >>> scores, target = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([1])
        >>> loss(scores, target, index=torch.tensor([0]))
        tensor(0.9089)
        >>> loss.memory[0]
        tensor([0.1996, 0.0734, 0.0270])
    """

    soft_targets = False

    samples: Dimension
    classes: Dimension
    strength: NotNegative = 3.0
    beta: Share = 0.7
    memory: Tensor = field(init=False)

    def check(self) -> None:
        """Make the memory."""
        self.register_buffer("memory", torch.zeros(self.samples, self.classes))

    def forward(self, scores: Tensor, target: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the loss of scores ``(N, L)`` and labels ``(N,)``.

        Args:
            scores: ``(N, L)``.
            target: Labels ``(N,)``.
            index: The row of each sample in the memory, int64 ``(N,)``, each once. In evaluation mode it may be None,
                for samples that are not remembered: their loss is cross-entropy.
        """
        shared: Shared = {
            "weight": self.weight,
            "ignore_index": self.ignore_index,
            "reduction": self.reduction,
        }
        if index is None and not self.training:
            return functional.cross_entropy(scores, target, **shared)
        check_target(target)
        check_scores(scores)
        index = _checked_index(index, target.shape, len(self.memory))
        expected = (index.numel(), self.memory.shape[1])
        if index.ndim != 1 or scores.shape != expected:
            raise ValueError(f"scores must have the shape (N, L), here {expected}, got {tuple(scores.shape)}")
        # During a backward pass activation checkpointing computes what was computed before, with its updated memory.
        again = not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1
        updates = self.training and not again
        known = self.memory[index]
        if updates:
            predictions = softmax(computing(scores.detach())).to(known.dtype)
            updated = torch.lerp(known, predictions, 1 - self.beta)
            known = torch.where(predictions.sum(1, keepdim=True).isfinite(), updated, known)
        loss = functional.early_learning(scores, target, known, strength=self.strength, **shared)
        if updates:  # after the loss, so that a call that is refused leaves nothing behind
            self.memory[index] = known
        return loss


def _checked_index(index: Tensor | None, shape: torch.Size, rows: int) -> Tensor:
    """Return the rows of a memory, if they have the target's shape and are in ``[0, rows)``."""
    if not isinstance(index, Tensor) or index.shape != shape:
        kind = "nothing" if index is None else type(index).__name__
        got = tuple(index.shape) if isinstance(index, Tensor) else kind
        raise ValueError(f"index must be a tensor of the target's shape {tuple(shape)}, got {got}")
    if index.dtype not in (torch.int64, torch.int32):  # torch takes other dtypes for masks, or not at all
        raise ValueError(f"index must be int64 or int32, got {index.dtype}")
    if values_are_readable(index) and index.numel():
        least, most = bounds_of(index)
        if least < 0 or most >= rows:
            raise ValueError(f"index must be in [0, {rows - 1}], got {least if least < 0 else most}")
    return index
