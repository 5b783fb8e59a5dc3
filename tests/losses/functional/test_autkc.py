import pytest
import torch

from topk_losses import functional

SURROGATES = ("squared", "exponential", "logistic", "hinge")


def test_by_hand():
    """q = 1/2, 1/4, 1/8, 1/8 and K = 2: three others, ``(1 - x)²`` of 1/4, 3/8, 3/8, halved."""
    scores = torch.tensor([[1 / 2, 1 / 4, 1 / 8, 1 / 8]], dtype=torch.float64).log()
    loss = functional.autkc(scores, torch.tensor([0]), 2)
    assert loss.item() == pytest.approx((0.75**2 + 2 * 0.625**2) / 2)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_it_bounds_the_area_above_the_curve(surrogate, sample):
    """Each ℓ is at least what it is at 0 wherever another is ahead: the area lost is at most the loss over ℓ(0)."""
    scores, target = sample(200, 9)
    ahead = (scores > scores.gather(1, target[:, None])).sum(1)
    lost = torch.stack([(ahead >= k).double() for k in range(1, 5)]).mean(0)
    at_0 = torch.log(torch.tensor(2.0)).item() if surrogate == "logistic" else 1.0
    loss = functional.autkc(scores, target, 4, surrogate, reduction="none")
    assert (lost <= loss / at_0 + 1e-12).all()
