"""The noised top-K hinge in kernels: on a GPU by Triton, on the CPU by Numba."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from topk_losses._fused import Margin
from topk_losses._kernels.dispatch import block_of, is_batched, launch, runs, takes
from topk_losses._kernels.noised_cpu import NoisedRowsOnCPU, takes_draws
from topk_losses._kernels.reduction import reduce_rows
from topk_losses._noised_draws import Generators, check_generators, seeds_of
from topk_losses._shapes import computing

__all__ = [
    "MOST_DRAWS",
    "MOST_K",
    "NoisedRows",
    "Rule",
    "noised_losses",
    "noised_rule",
    "noised_topk_hinge_by",
    "takes_noised",
]

MOST_K = 31
MOST_DRAWS = 128
DRAWS_AT_ONCE = 16
CHUNK = 64  # classes drawn for at once: with more, few programs fit a processor's registers
LEAST_ROOM = 256  # candidates that are put together in memory, or a sixteenth of the classes
GROUPS = 256


def takes_noised(scores: Tensor, target: Tensor, k: int, samples: int, margin: Margin = 1.0) -> bool:
    """Whether the kernels can have this call."""
    few = samples <= MOST_DRAWS and k <= MOST_K
    return few and takes(scores, target) and runs(NoisedRows(k, 1.0, samples), scores, margin)


class Rule(Protocol):
    """The noised hinge of rows, on one kind of device."""

    def forward(
        self, scores: Tensor, labels: Tensor, margin: Margin, seeds: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Losses ``(M,)``, where the hinge is active ``(M,)``, and the class that each draw chose ``(M, B)``."""
        ...

    def backward(
        self, gradient: Tensor, labels: Tensor, active: Tensor, places: Tensor, like: Tensor
    ) -> Tensor:
        """The gradient with respect to the scores, ``like`` which it is."""
        ...


def noised_rule(
    scores: Tensor,
    target: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    margin: Margin,
    generator: Generators,
    ignore_index: int,
) -> Rule | None:
    """The rule that can have this call, if there is one."""
    if not isinstance(generator, Sequence) and takes_noised(scores, target, k, samples, margin):
        return NoisedRows(k, epsilon, samples, ignore_index)
    hard = not target.is_floating_point() and target.device == scores.device
    if hard and takes_draws(scores, k + 1, epsilon):
        return NoisedRowsOnCPU(k, epsilon, samples, ignore_index)
    return None


def noised_topk_hinge_by(
    rule: Rule,
    scores: Tensor,
    target: Tensor,
    margin: Margin,
    generator: Generators,
    *,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """:func:`~topk_losses.functional.noised_topk_hinge` with noise and rows computed by the kernels.

    The seed of all noise is drawn from the generator, on the device; one from each, if there are several.
    """
    check_generators(generator, target.numel())
    seeds = seeds_of(generator, scores.device)

    def losses_of(rows: Tensor, labels: Tensor, margins: Margin) -> Tensor:
        return noised_losses(rule, rows, labels, margins, seeds)

    return reduce_rows(
        losses_of, scores, target, margin, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


def noised_losses(rule: Rule, rows: Tensor, labels: Tensor, margin: Margin, seeds: Tensor) -> Tensor:
    """Losses ``(M,)`` of scores ``(M, L)``, labels ``(M,)`` and a margin or one per row."""
    losses: Tensor = _Losses.apply(rows, labels, margin, seeds, rule)[0]
    return losses


@dataclass(frozen=True)
class NoisedRows:
    """The noised top-K hinge of rows at K, ε and B; what is ignored costs nothing.

    Attributes:
        least_room: candidates that are put together in memory if there are that few, or no more than a sixteenth
            of the classes; with more, all classes are drawn for.
    """

    k: int
    epsilon: float
    samples: int
    ignore_index: int = -100
    least_room: int = LEAST_ROOM

    def forward(
        self, scores: Tensor, labels: Tensor, margin: Margin, seeds: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The losses, where the hinge is active, and the class that each draw chose ``(M, B)``."""
        scores = scores if scores.stride(1) == 1 else scores.contiguous()
        rows, classes = scores.shape
        block = block_of(classes)
        room = min(block, max(self.least_room, block // 16))
        losses, active = (torch.empty(rows, dtype=torch.float32, device=scores.device) for _ in range(2))
        places = torch.empty(rows, self.samples, dtype=torch.int32, device=scores.device)
        kept = torch.empty(rows, room, dtype=torch.int32, device=scores.device)
        launch(
            _kernels().noised_forward,
            scores,
            scores,
            labels.contiguous(),
            margin.contiguous() if isinstance(margin, Tensor) else losses,
            seeds,
            losses,
            active,
            places,
            kept,
            scores.stride(0),
            classes,
            self.ignore_index,
            float(self.epsilon),
            0.0 if isinstance(margin, Tensor) else float(margin),
            self.samples,
            PER_ROW=isinstance(margin, Tensor),
            K=self.k,
            SLOTS=1 << self.k.bit_length(),
            DRAWS=min(self._lanes, DRAWS_AT_ONCE),
            ROOM=room,
            GROUPS=min(GROUPS, block),
            CHUNK=CHUNK,
            block=block,
        )
        return losses, active, places

    def backward(
        self, gradient: Tensor, labels: Tensor, active: Tensor, places: Tensor, like: Tensor
    ) -> Tensor:
        """The gradient with respect to the scores, ``like`` which it is."""
        if is_batched(gradient):
            return gradient.unsqueeze(1) * self.backward(
                torch.ones_like(active), labels, active, places, like
            )
        classes = like.shape[1]
        out = torch.empty_like(like, memory_format=torch.contiguous_format)
        launch(
            _kernels().noised_backward,
            out,
            labels.contiguous(),
            gradient,
            active,
            places,
            out,
            gradient.stride(0),
            classes,
            self.samples,
            DRAWS=self._lanes,
            block=min(block_of(classes), 4096),
        )
        return out

    @property
    def name(self) -> str:
        """What the loss is called."""
        return "noised_topk_hinge"

    def rehearse(self, scores: Tensor, margin: Margin, with_gradient: bool) -> None:
        """Launch what a call with such scores and margins launches."""
        labels = torch.zeros(len(scores), dtype=torch.int64, device=scores.device)
        losses, active, places = self.forward(scores, labels, margin, seeds=torch.zeros_like(labels))
        if with_gradient:
            self.backward(losses.mean().expand(len(scores)), labels, active, places, like=scores)

    @property
    def _lanes(self) -> int:
        """The least power of two from 4 on, the Gaussians made together, that holds the draws."""
        return max(4, 1 << (self.samples - 1).bit_length())


class _Losses(torch.autograd.Function):
    """Losses, then what the gradient needs."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        scores, labels, margin, seeds, ctx.rule = inputs
        output: tuple[Tensor, ...] = ctx.rule.forward(scores, labels, margin, seeds)
        ctx.per_row = isinstance(margin, Tensor)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, labels, *output[1:])
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if gradient is None:
            return None, None, None, None, None
        scores, labels, active, places = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants this differentiated again
            by_score = _Gradient.apply(gradient, labels, active, places, scores, ctx.rule)
        else:
            by_score = ctx.rule.backward(gradient, labels, active, places, like=scores)
        return by_score, None, gradient * active if ctx.per_row else None, None, None


class _Gradient(torch.autograd.Function):
    """The gradient with respect to the scores, linear in that to the losses; the draws being made, in nothing else."""

    @staticmethod
    def forward(*inputs: Any) -> Tensor:
        *tensors, scores, rule = inputs
        gradient: Tensor = rule.backward(*tensors, like=scores)
        return gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[1:4])

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        labels, active, places = ctx.saved_tensors
        chosen = computing(slopes).gather(1, places.clamp(min=0).to(torch.int64))
        chosen = chosen.masked_fill(places < 0, 0).mean(1)
        own = slopes.gather(1, labels.clamp(0, slopes.shape[1] - 1).unsqueeze(1)).squeeze(1)
        return (chosen - own) * active, None, None, None, None, None


def _kernels() -> Any:
    from topk_losses._kernels import noised_triton  # noqa: PLC0415  # for CUDA tensors alone

    return noised_triton
