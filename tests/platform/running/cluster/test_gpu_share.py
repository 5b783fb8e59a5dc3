"""A process on a part of a GPU: it gets its share of the memory and no more. Ray is not needed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from topk_platform.running.cluster.machine import cap_memory, memory_part

pytestmark = pytest.mark.gpu

SHARE = 0.05
SPARE = 2**26  # the allocator takes memory in blocks


@pytest.fixture
def capped() -> Iterator[int]:
    """The bytes that this process's tensors may take, a twentieth of the GPU less what CUDA holds."""
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties().total_memory
    cap_memory(SHARE)
    try:
        yield int(total * memory_part(SHARE, total))
    finally:
        cap_memory(1.0)
        torch.cuda.empty_cache()


def test_tensors_fit_into_the_share_and_not_beyond_it(capped: int) -> None:
    held = torch.empty(capped - torch.cuda.memory_reserved() - SPARE, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.empty(2 * SPARE, dtype=torch.uint8, device="cuda")
    del held


def test_the_memory_beyond_it_stays_the_neighbours(capped: int) -> None:
    free, total = torch.cuda.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(capped + SPARE, dtype=torch.uint8, device="cuda")
    assert torch.cuda.mem_get_info()[0] >= free - SPARE
    assert capped < SHARE * total


def test_a_whole_gpu_has_no_limit() -> None:
    cap_memory(SHARE)
    cap_memory(1.0)
    total = torch.cuda.get_device_properties().total_memory
    torch.empty(min(int(0.2 * total), torch.cuda.mem_get_info()[0] // 2), dtype=torch.uint8, device="cuda")
