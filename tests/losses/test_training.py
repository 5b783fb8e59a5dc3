"""Losses at work: a plain training loop, and several models at once."""

import pytest
import torch
from torch import nn

import topk_losses

COUNTS = [40, 30, 20, 10, 8, 6]
LOSSES = {
    "CrossEntropy": topk_losses.CrossEntropy(),
    "Focal": topk_losses.Focal(),
    "LDAM": topk_losses.LDAM.from_counts(COUNTS, max_margin=0.3, scale=10.0),
    "BalancedSoftmax": topk_losses.BalancedSoftmax(COUNTS),
    "LogitAdjusted": topk_losses.LogitAdjusted(COUNTS, tau=0.5),
    "TopKHinge": topk_losses.TopKHinge(k=2),
    "ConvexTopKHinge": topk_losses.ConvexTopKHinge(k=2),
    "CalibratedTopKHinge": topk_losses.CalibratedTopKHinge(k=2),
    "SmoothTopKSVM": topk_losses.SmoothTopKSVM(k=2, tau=0.5),
    "NoisedTopKHinge": topk_losses.NoisedTopKHinge(k=2, epsilon=0.5),
    "ExactNoisedTopKHinge": topk_losses.NoisedTopKHinge(k=2, epsilon=0.5, samples=None),
    "NoisedImbalancedTopKHinge": topk_losses.NoisedImbalancedTopKHinge.from_counts(COUNTS, k=2, epsilon=0.1),
    "TopKGrouping": topk_losses.TopKGrouping(k=2),
    "TopKTransition": topk_losses.TopKTransition(k=2),
    "LapSumTopKLoss": topk_losses.LapSumTopKLoss(k=2),
    "SmoothTopKHinge": topk_losses.SmoothTopKHinge(k=2),
    "SortingTopKCrossEntropy": topk_losses.SortingTopKCrossEntropy(k=2, candidates=8),
    "TopKEntropy": topk_losses.TopKEntropy(k=2),
    "TruncatedTopKEntropy": topk_losses.TruncatedTopKEntropy(k=2),
}


def clusters(rows=120, features=8):
    """One direction per class and a little noise: a problem that a linear model solves."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(rows) % 6
    centres = torch.eye(6, features)
    return centres[target] + 0.1 * torch.randn(rows, features, generator=generator), target


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_a_linear_model(name):
    """After 60 steps the target is among the two best for (nearly) all samples; at the start for a third."""
    features, target = clusters()
    torch.manual_seed(0)
    model = topk_losses.CosineHead(8, 6) if "Imbalanced" in name or name == "LDAM" else nn.Linear(8, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05 if "Imbalanced" in name else 0.5, momentum=0.9)
    loss = LOSSES[name]
    for _ in range(60):
        optimizer.zero_grad()
        loss(model(features), target).backward()
        optimizer.step()
    best = model(features).topk(2).indices
    assert (best == target.unsqueeze(1)).any(1).double().mean() > 0.95
