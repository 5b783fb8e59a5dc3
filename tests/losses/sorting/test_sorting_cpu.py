"""The compiled network against plain torch: rows that are no multiple of its lanes, and all kinds of invalid ones."""

import pytest
import torch

from topk_losses import explain_backend, use_backend
from topk_losses._core import numba
from topk_losses.functional import sorting_topk_cross_entropy

pytestmark = pytest.mark.skipif(not numba.is_there(), reason="Numba is not installed")

NETWORKS = {
    "one": {"k": 5},
    "mixture": {"k": 3, "candidates": 8, "mixture": [0.3, 0.0, 0.7]},
    "top-1 among others": {"k": 2, "candidates": 4, "mixture": [0.9, 0.1]},
    "large": {"k": 20, "candidates": 64, "steepness": 0.7},
    "steep": {"k": 5, "steepness": 1e6},
}


def special(classes, spread, rows=70):
    source = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(rows, classes, generator=source)
    labels = torch.randint(classes, (rows,), generator=source)
    scores[2, :3] = -torch.inf
    scores[3, : classes - 2] = -torch.inf
    scores[4, 2] = torch.nan
    scores[5, labels[5]] = torch.inf
    scores[6, labels[6]] = -torch.inf
    scores[7, (labels[7] + 1) % classes] = torch.inf
    return scores, labels


def results(backend, scores, labels, network):
    leaf = scores.clone().requires_grad_()
    with use_backend(backend):
        losses = sorting_topk_cross_entropy(leaf, labels, **network, reduction="none")
        along = torch.linspace(0.5, 1.5, len(losses))
        (gradient,) = torch.autograd.grad((losses * along).nan_to_num(0, 0, 0).sum(), leaf)
    return losses.detach(), gradient


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("classes", [25, 100])
@pytest.mark.parametrize("spread", [0.1, 3.0, 1000.0])
def test_it_is_the_network_in_torch(name, classes, spread):
    scores, labels = special(classes, spread)
    expected, slopes = results("torch", scores, labels, NETWORKS[name])
    losses, gradient = results("numba", scores, labels, NETWORKS[name])
    torch.testing.assert_close(losses, expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    scale = NETWORKS[name].get("steepness", 2.0)
    torch.testing.assert_close(gradient, slopes, rtol=1e-6, atol=1e-7 * scale, equal_nan=True)


@pytest.mark.parametrize("classes", [6, 9])
def test_fewer_classes_than_wires(classes):
    scores, labels = special(classes, 1.0)
    network = {"k": 4, "candidates": 32}
    result = results("numba", scores, labels, network)
    torch.testing.assert_close(result, results("torch", scores, labels, network), equal_nan=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"relaxation": "logistic"}, "the kernel has no logistic comparators"),
        ({"mixture": [1.0, 0.0]}, "top-1 alone needs no network"),
    ],
)
def test_what_the_kernel_does_not_do_is_said(options, reason):
    scores, labels = special(30, 1.0)
    result = explain_backend(sorting_topk_cross_entropy, scores, labels, 2, **options)
    assert result[0].operation == "sorting"
    assert result[0].refusals == {"numba": reason}
