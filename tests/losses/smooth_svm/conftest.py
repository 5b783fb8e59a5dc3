"""Scores among which are those where the smooth top-K SVM turns, which Gaussian scores never reach."""

import pytest
import torch


@pytest.fixture(scope="session")
def turning_rows():
    """A function of classes, K, τ and seed: float32 scores and labels.

    The scores are of each spread and offset, in half of the rows the label's where the hinge turns.
    """

    def draw(classes, k, tau, seed=0):
        source = torch.Generator().manual_seed(seed)
        shape = [
            (offset, spread) for offset in (0.0, 10.0, -1000.0, 1000.0) for spread in (0.1, 3.0, 10.0, 30.0)
        ]
        offsets, spreads = torch.tensor(shape).repeat(2, 1).split(1, 1)
        scores = offsets + spreads * torch.randn(len(offsets), classes, generator=source)
        target = torch.randint(classes, (len(offsets),), generator=source)
        others = scores.double().scatter(1, target[:, None], -torch.inf)
        bar = others.topk(k, dim=1).values[:, -1:] + k
        bar += k * tau * torch.randn(len(offsets), 1, generator=source, dtype=torch.float64)
        half = len(offsets) // 2
        scores[:half] = scores[:half].scatter(1, target[:half, None], bar[:half].float())
        return scores, target

    return draw
