import pytest
import torch

from topk_losses import functional

SURROGATES = ("squared", "exponential", "logistic", "hinge")


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("k", [1, 3, 6, 7])
def test_loss_and_gradient_are_those_of_the_definition(surrogate, k, assert_matches_oracle):
    assert_matches_oracle("autkc", classes=8, parameters={"k": k, "surrogate": surrogate}, rows=6)


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


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_masked_classes_have_no_term(surrogate, sample):
    scores, target = sample(5, 4)
    masked = torch.cat([scores, torch.full((5, 3), -torch.inf)], 1)
    for k in (1, 2, 3):
        torch.testing.assert_close(
            functional.autkc(masked, target, k, surrogate), functional.autkc(scores, target, k, surrogate)
        )
