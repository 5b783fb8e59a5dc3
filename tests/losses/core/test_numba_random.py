"""The random numbers of the kernels that draw, against NumPy's."""

import numpy as np
import pytest

pytest.importorskip("numba")

from topk_losses._core import numba_random_kernels as sfc64
from topk_losses._core.numba import compiled


@compiled(counting=False)
def fill(number, part, state, numbers):
    sfc64.seed(number, part, state)
    for i in range(len(numbers)):
        numbers[i, 0], numbers[i, 1] = sfc64.normal(state), sfc64.exponential(state)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 - 2])
@pytest.mark.parametrize("part", [0, 3])
def test_the_kernels_numbers_are_numpys_bit_for_bit(seed, part):
    words = [seed % 2**32, seed >> 32, part] if seed >> 32 else [seed, part]
    source = np.random.Generator(np.random.SFC64(np.array(words, np.uint32)))
    numbers = np.empty((20_000, 2))
    fill(seed, part, np.empty(4, np.uint64), numbers)
    assert numbers.tolist() == [[source.standard_normal(), source.standard_exponential()] for _ in numbers]
