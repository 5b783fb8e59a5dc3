import math

import pytest
import torch
from gradients import with_gradient

from topk_losses import functional
from topk_losses.testing import oracles

MARGINS = torch.tensor([0.3, 0.1, 0.7, 0.2, 0.5, 0.4], dtype=torch.float64)
KINDS = {
    "balanced": (functional.noised_topk_hinge, {}),
    "imbalanced": (functional.noised_imbalanced_topk_hinge, {"margins": MARGINS}),
}


@pytest.mark.parametrize("k", range(1, 6))
def test_loss_and_gradient_are_those_of_the_definition(k, sample):
    scores, target = sample(20, 6)
    noise = torch.randn(5, 20, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def oracle(scores):
        rows = zip(scores, target.tolist(), noise.unbind(1), strict=True)
        return torch.stack([oracles.noised_topk_hinge(s, y, k, 0.8, drawn) for s, y, drawn in rows])

    losses = with_gradient(
        lambda s: functional.noised_topk_hinge(s, target, k, 0.8, noise=noise, reduction="none"), scores
    )
    torch.testing.assert_close(losses, with_gradient(oracle, scores), rtol=1e-10, atol=1e-10)


def test_a_class_far_above_the_others_takes_no_precision(sample):
    scores, target = sample(20, 6)
    scores, target = scores.float(), target.masked_fill(target == 2, 0)
    scores[:, 2] = 1e8
    noise = torch.randn(5, 20, 6, generator=torch.Generator().manual_seed(1))
    losses = [
        functional.noised_topk_hinge(s, target, 2, 0.8, noise=noise, margin=9.0, reduction="none")
        for s in (scores, scores.double().clamp(max=50))
    ]
    torch.testing.assert_close(losses[0].double(), losses[1], rtol=0, atol=1e-5)


def test_worked_example_of_the_paper():
    """Garcin et al. 2022, section 3.2: the second largest is 2.4667, here the loss's K + 1 = 2."""
    scores, target = torch.tensor([[2.4, 2.6, 2.3, 0.5]], dtype=torch.float64), torch.tensor([3])
    noise = torch.tensor([[[0.2, -0.1, 0.1, 0.3]], [[0.1, 0.1, -0.1, 0.1]], [[-0.1, -0.1, 0.1, -0.1]]])
    loss, gradient = with_gradient(
        lambda s: functional.noised_topk_hinge(s, target, k=1, epsilon=1.0, noise=noise.double()), scores
    )
    assert loss.item() == pytest.approx(1 + 7.4 / 3 - 0.5)
    assert gradient.tolist()[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1])


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_unbiased_where_the_hinge_is_active(kind):
    """Mean gradient of 4000 rows of 5 draws against the exact one, within 5 standard errors.

    The scores keep the hinge active for every draw: at its kink the clipping itself would bring a bias.
    Of 12 comparisons in all, one would fail for one seed in 10⁵ if the loss is right.
    """
    function, extra = KINDS[kind]
    row = torch.tensor([[0.9, 0.5, 0.2, -0.1, -0.3, 0.0]], dtype=torch.float64)
    target, drawing = torch.full((4000,), 4), {"generator": torch.Generator().manual_seed(0)}

    def loss(s, **how):
        return function(s, target[: len(s)], k=2, epsilon=0.2, reduction="sum", **how, **extra)

    _, drawn = with_gradient(lambda s: loss(s, **drawing), row.repeat(4000, 1))
    _, exact = with_gradient(lambda s: loss(s, samples=None), row)
    error, spread = drawn.mean(0) - exact[0], drawn.std(0) / math.sqrt(4000)
    assert (error.abs() <= 5 * spread + 1e-9).all()
    assert exact.abs().max() > 0


def test_noise_has_the_layout_of_the_scores(sample):
    scores, target = sample(12, 6)
    noise = torch.randn(3, 12, 6, dtype=torch.float64)
    given, drawn = scores.reshape(3, 4, 6).movedim(-1, 1), noise.reshape(3, 3, 4, 6).movedim(-1, 2)
    losses = functional.noised_topk_hinge(given, target.reshape(3, 4), 2, noise=drawn, reduction="none")
    flat = functional.noised_topk_hinge(scores, target, 2, noise=noise, reduction="none")
    torch.testing.assert_close(losses, flat.reshape(3, 4))


def test_compiles_to_one_graph_for_every_batch_size(plain_torch):
    """A generator as an argument breaks the graph, a limit of torch's; without one there is a single graph."""
    loss = torch.compile(functional.noised_topk_hinge, fullgraph=True, backend="aot_eager")
    for rows in (3, 5, 8):
        scores, target = torch.randn(rows, 6), torch.arange(rows) % 6
        torch.manual_seed(rows)
        compiled = loss(scores, target, 2)
        torch.manual_seed(rows)
        assert compiled == functional.noised_topk_hinge(scores, target, 2)


@pytest.mark.parametrize("classes", [10, 200])  # drawn in full, and by exceedances
@pytest.mark.parametrize("loss", ["noised_topk_hinge", "noised_imbalanced_topk_hinge"])
def test_each_of_several_generators_draws_as_if_alone(way, loss, classes):
    scores = 0.3 * torch.randn(12, classes, generator=torch.Generator().manual_seed(0))
    target = torch.arange(12) % classes

    def losses(rows, labels, generator):
        own = {"margins": torch.full((classes,), 0.1)} if "imbalanced" in loss else {}
        how = {"samples": 4, "epsilon": 0.2, "generator": generator, "reduction": "none", **own}
        return with_gradient(lambda s: getattr(functional, loss)(s, labels, 3, **how), rows)

    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2, 3)]
    together = losses(scores, target, generators)
    parts = zip(scores.split(4), target.split(4), (1, 2, 3), strict=True)
    alone = [losses(rows, labels, torch.Generator().manual_seed(seed)) for rows, labels, seed in parts]
    for one, others in zip(together, zip(*alone, strict=True), strict=True):
        torch.testing.assert_close(one, torch.cat(others), rtol=0, atol=1e-6)
