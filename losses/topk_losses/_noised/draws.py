"""Draws of the k-th largest noisy score: its class in each draw, and its mean noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from topk_losses._core import numba
from topk_losses._core.backends import choose
from topk_losses._core.checks import values_are_readable
from topk_losses._noised import cpu

__all__ = ["Draws", "Generators", "check_generators", "noised_draws", "seeds_of", "shares"]

AT_ONCE = 2**20  # numbers drawn at once, to fit into the cache


class Draws(NamedTuple):
    """The k-th largest of ``s + εZ`` of each row."""

    classes: Tensor
    """Its class in each draw ``(N, B)``."""
    noise: Tensor
    """The mean of its noise εZ over the draws ``(N,)``."""


def noised_draws(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None = None,
    generator: Generators = None,
) -> Draws:
    """Return draws for scores ``(N, L)``, with the noise ``(B, N, L)`` if it is given; without gradient.

    Several generators divide the rows evenly, in order, and each draws what it would draw for its share alone.
    """
    scores = scores.detach()
    if noise is not None or epsilon == 0:
        return _in_full(scores, k, epsilon, samples, noise, None)
    if len(scores) and choose("noise", numba=lambda _: cpu.refusal(scores, k, epsilon)) == "numba":
        return _compiled(scores, k, epsilon, samples, generator)
    parts = [_in_pieces(share, k, epsilon, samples, one) for share, one in shares(scores, generator)]
    return _joined(parts)


def _in_pieces(
    scores: Tensor, k: int, epsilon: float, samples: int, generator: torch.Generator | None
) -> Draws:
    """Draws of so many rows at once that their noise takes little memory; of all rows in a graph."""
    if not values_are_readable(scores):
        return _in_full(scores, k, epsilon, samples, None, generator)
    pieces = torch.split(scores, max(1, AT_ONCE // (samples * scores.shape[1])))
    return _joined([_in_full(piece, k, epsilon, samples, None, generator) for piece in pieces])


def _joined(parts: Sequence[Draws]) -> Draws:
    if len(parts) == 1:
        return parts[0]
    return Draws(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))


def _compiled(scores: Tensor, k: int, epsilon: float, samples: int, generator: Generators) -> Draws:
    check_generators(generator, len(scores))
    seeds = seeds_of(generator, scores.device).tolist()
    drawn = cpu.draw(numba.array(scores), k, epsilon, samples, seeds)
    classes, noise = (torch.from_numpy(array) for array in drawn)
    unusual = classes[:, 0] < 0
    if unusual.any():  # rows that cannot be drawn for get the k-th largest of their scores, without noise
        classes[unusual], noise[unusual] = scores[unusual].topk(k).indices[:, -1:], 0
    return Draws(classes, noise)


def _in_full(
    scores: Tensor,
    k: int,
    epsilon: float,
    samples: int,
    noise: Tensor | None,
    generator: torch.Generator | None,
) -> Draws:
    if epsilon == 0:
        classes = scores.topk(k).indices[:, -1:]
        return Draws(classes, torch.zeros_like(scores[:, 0]))
    if noise is None:
        noise = _normal(samples, scores, generator).mul_(epsilon)
    else:
        noise = epsilon * noise.detach().to(scores.dtype)
    # Relative to the k-th largest score, so that the noise is not rounded away beside large scores.
    hard = scores.topk(k).values[:, -1:]
    noisy = scores - hard.masked_fill(hard == -torch.inf, 0) + noise
    places = noisy.topk(k).indices[..., -1]
    return Draws(places.t(), noise.gather(2, places.unsqueeze(2)).squeeze(2).mean(0))


def _normal(samples: int, scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """Standard normal numbers for each of the samples ``(B, N, L)``."""
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        noise: Tensor = _Normal.apply(scores, samples, generator)
        return noise
    shape = (samples, *scores.shape)
    if generator is None:  # torch.compile supports symbolic shapes only for the overload without a generator
        return torch.randn(shape, device=scores.device, dtype=scores.dtype)
    return torch.randn(shape, generator=generator, device=scores.device, dtype=scores.dtype)


class _Normal(torch.autograd.Function):
    """:func:`_normal` inside ``torch.func``: all directions of a derivative have the same noise.

    ``vmap`` calls a function's own rule only where the scores themselves differ, as for several models.
    """

    @staticmethod
    def forward(scores: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        return _normal(samples, scores, generator)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(_ctx: Any, _gradient: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def jvp(_ctx: Any, *_along: Tensor | None) -> None:
        return None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int, ...], scores: Tensor, samples: int, generator: torch.Generator | None
    ) -> tuple[Tensor, int | None]:
        models = scores.movedim(in_dims[0], 0)
        if info.randomness == "error":
            raise RuntimeError("noise for several models needs vmap(..., randomness='same' or 'different')")
        if info.randomness == "same":
            return _normal(samples, models[0], generator), None
        return torch.stack([_normal(samples, model, generator) for model in models.unbind(0)]), 0


Generators: TypeAlias = torch.Generator | Sequence[torch.Generator] | None


def check_generators(generator: Generators, rows: int) -> None:
    """Check one generator, or several that divide the rows evenly."""
    if isinstance(generator, Sequence) and (not generator or rows % len(generator)):
        raise ValueError(
            f"generator must be one, or several whose number divides the {rows} samples, got {len(generator)}"
        )


def seeds_of(generator: Generators, device: torch.device) -> Tensor:
    """A seed from each generator ``(G,)``, for kernels that make their own noise."""
    sources = generator if isinstance(generator, Sequence) else [generator]
    seeds = [torch.randint(2**63 - 1, (1,), generator=one, device=device) for one in sources]
    return seeds[0] if len(seeds) == 1 else torch.cat(seeds)


def shares(scores: Tensor, generator: Generators) -> list[tuple[Tensor, torch.Generator | None]]:
    """The rows for which each generator draws, and the generator."""
    if generator is None or isinstance(generator, torch.Generator):
        return [(scores, generator)]
    check_generators(generator, len(scores))
    return list(zip(torch.split(scores, len(scores) // len(generator)), generator, strict=True))
