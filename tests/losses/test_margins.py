import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from topk_losses import effective_number_weights, uneven_margins


@given(counts=st.lists(st.integers(1, 10**7), min_size=1, max_size=20), largest=st.floats(1e-3, 10))
def test_margins_follow_the_fourth_root_of_the_counts(counts, largest):
    margins = uneven_margins(counts, largest)
    expected = [largest * (n / min(counts)) ** -0.25 for n in counts]
    assert margins.dtype == torch.float32
    assert margins.tolist() == pytest.approx(expected, rel=1e-6)
    assert margins.max().item() == pytest.approx(largest, rel=1e-6)


@given(counts=st.lists(st.integers(1, 1000), min_size=1, max_size=5), beta=st.sampled_from([0, 0.9, 0.9999]))
def test_weights_are_the_inverse_effective_numbers(counts, beta):
    """The effective number of n samples is ``1 + β + … + β^(n-1)``."""
    weights = effective_number_weights(torch.tensor(counts), beta)
    inverse = [1 / sum(beta**i for i in range(n)) for n in counts]
    assert weights.tolist() == pytest.approx([w * len(counts) / sum(inverse) for w in inverse], rel=1e-5)
