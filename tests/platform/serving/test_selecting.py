"""Selectors: trained at once as each is trained alone, and better than a fixed number of candidates."""

from __future__ import annotations

import torch

from topk_losses.functional import cardinality_costs, cardinality_loss
from topk_platform.metrics import topk_credit
from topk_platform.serving.selecting import CARDINALITIES, train_selectors

CLASSES = 10


def easy_and_hard(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Half of the samples are sure of their class, the other half has no idea."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    scores = torch.randn(samples, CLASSES, generator=generator)
    scores[: samples // 2] += 8 * torch.eye(CLASSES)[labels[: samples // 2]]
    return scores, labels


def test_easy_samples_get_one_candidate_and_hard_ones_many() -> None:
    selectors = train_selectors(*easy_and_hard(600, 0), (0.1,))
    scores, labels = easy_and_hard(1000, 1)
    (sizes,) = selectors.chosen(scores)
    assert (sizes[:500] == 1).float().mean() > 0.9 and (sizes[500:] == 8).float().mean() > 0.9
    credit = topk_credit(scores, labels, CARDINALITIES)
    selected = sum(((sizes == k) * c).mean().item() for k, c in zip(CARDINALITIES, credit, strict=True))
    assert selected > credit[2].mean() + 0.1  # that of 4 for all, of no more candidates on average
    assert sizes.double().mean() < 4.7


def test_a_larger_penalty_gives_smaller_sets() -> None:
    selectors = train_selectors(*easy_and_hard(600, 0), (0.0, 0.5, 20.0))
    sizes = selectors.chosen(easy_and_hard(400, 1)[0]).double().mean(1)
    assert sizes[0] > sizes[1] > sizes[2] == 1


def test_selectors_trained_at_once_are_those_trained_alone() -> None:
    """The oracle is torch's own layers, one selector after the other."""
    scores, labels = easy_and_hard(200, 2)
    penalties = (0.0, 0.3)
    together = train_selectors(scores, labels, penalties, seed=5, epochs=3)
    inputs = scores.double().log_softmax(1).sort(1, descending=True).values.float()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0, correction=0)
    for number, penalty in enumerate(penalties):
        generator = torch.Generator().manual_seed(5)
        layers = [torch.nn.Linear(CLASSES, 64), torch.nn.Linear(64, 4)]
        with torch.no_grad():
            for layer in layers:
                bound = layer.in_features**-0.5
                layer.weight.copy_((2 * torch.rand(*layer.weight.T.shape, generator=generator) - 1).T * bound)
                layer.bias.copy_((2 * torch.rand(layer.out_features, generator=generator) - 1) * bound)
        network = torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
        costs = cardinality_costs(scores, labels, CARDINALITIES, penalty)
        for _ in range(3):
            for rows in torch.split(torch.randperm(200, generator=generator), 128):
                optimizer.zero_grad()
                cardinality_loss(network(inputs[rows]), costs[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        ours = [weights[number].squeeze(0) for weights in together.weights]
        theirs = [layers[0].weight.T, layers[0].bias, layers[1].weight.T, layers[1].bias]
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
