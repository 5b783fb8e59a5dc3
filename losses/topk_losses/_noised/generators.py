"""The random generators of the noise: torch's, one or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["Generators", "check_generators", "seeds_of", "shares"]

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
