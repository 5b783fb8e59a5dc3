import pytest
import torch
from gradients import with_gradient
from hypothesis import given
from hypothesis import strategies as st

from topk_losses import functional
from topk_losses.testing import oracles

HINGES = ["topk_hinge", "convex_topk_hinge", "calibrated_topk_hinge"]


def integer_scores(classes):
    """Rows with many equal scores."""
    return st.lists(st.integers(-2, 2).map(float), min_size=classes, max_size=classes)


@pytest.mark.parametrize("name", HINGES)
@given(scores=integer_scores(5), label=st.integers(0, 4), k=st.integers(1, 4))
def test_equal_scores(name, scores, label, k):
    row = torch.tensor(scores, dtype=torch.float64)
    value = getattr(functional, name)(row[None], torch.tensor([label]), k, margin=0.5)
    torch.testing.assert_close(value, getattr(oracles, name)(row, label, k, margin=0.5))


@given(scores=integer_scores(5), label=st.integers(0, 4), k=st.integers(1, 4))
def test_equal_scores_give_a_subgradient_of_the_hinge(scores, label, k):
    """The target is not among the classes that are sorted: wherever the hinge is active its entry is -1."""
    row = torch.tensor(scores)
    _, gradient = with_gradient(
        lambda s: functional.topk_hinge(s[None], torch.tensor([label]), k, margin=10.0), row
    )
    assert gradient[label] == -1
    others, rival = torch.cat([row[:label], row[label + 1 :]]), row[gradient == 1]
    assert rival.item() == others.sort(descending=True).values[k - 1]


@given(scores=st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=9), data=st.data())
def test_order_of_the_hinges(scores, data):
    """The convex hinge bounds the hinge from above, the calibrated one from below."""
    label = data.draw(st.integers(0, len(scores) - 1))
    k = data.draw(st.integers(1, len(scores) - 1))
    rows, target = torch.tensor([scores], dtype=torch.float64), torch.tensor([label])
    calibrated, hinge, convex = (
        getattr(functional, name)(rows, target, k).item()
        for name in ("calibrated_topk_hinge", "topk_hinge", "convex_topk_hinge")
    )
    assert calibrated <= hinge <= convex + 1e-9


@pytest.mark.parametrize("name", HINGES)
@pytest.mark.parametrize("rivals", [0, 1, 2])
def test_fewer_rivals_than_k_cost_nothing(name, rivals):
    scores = torch.full((1, 5), -torch.inf)
    scores[0, : rivals + 1] = torch.tensor([1.0, 5.0, 6.0])[: rivals + 1]
    loss, gradient = with_gradient(lambda s: getattr(functional, name)(s, torch.tensor([0]), k=3), scores)
    assert loss == 0
    assert gradient.abs().max() == 0
