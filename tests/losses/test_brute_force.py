"""Every loss against its definition, written out for one row at a time."""

import itertools
import math

import pytest
import torch

from topk_losses import functional as F

CLASSES = 6
MARGINS = torch.tensor([0.3, 0.1, 0.7, 0.2, 0.5, 0.4], dtype=torch.float64)
COUNTS = torch.tensor([100, 10, 40, 7, 1, 3])


def softmax(s):
    e = [math.exp(v) for v in s]
    return [v / sum(e) for v in e]


def smooth(s, y, k, tau=0.7, margin=0.8):
    def total(with_margin):
        subsets = itertools.combinations(range(len(s)), k)
        return sum(
            math.exp((margin * (y not in a) * with_margin + sum(s[j] for j in a) / k) / tau)
            for a in subsets
            if with_margin or y in a
        )

    return tau * math.log(total(True) / total(False))


def grouping(s, y, k):
    q = softmax(s)
    best = sorted(range(len(s)), key=lambda j: -s[j])[:k]
    return -math.log(sum(q[j] for j in best)) if y in best else -math.log(q[y])


def transition(s, y, k):
    share = sum(sorted(softmax(s))[-k:])
    return (1 - share) * -math.log(softmax(s)[y]) + share * grouping(s, y, k)


def truncated(s, y, k):
    others = sorted(s[:y] + s[y + 1 :])
    return math.log(1 + sum(math.exp(v - s[y]) for v in others[: len(others) - k + 1]))


def convex(s, y, k):
    raised = sorted([v + 0.8 * (j != y) for j, v in enumerate(s)])
    return max(0.0, sum(raised[-k:]) / k - s[y])


def ldam(s, y):
    return -math.log(softmax([5 * (v - (j == y) * MARGINS[j].item()) for j, v in enumerate(s)])[y])


def adjusted(s, y, tau):
    return -math.log(softmax([v + tau * math.log(n) for v, n in zip(s, COUNTS.tolist(), strict=True)])[y])


CASES = {
    "cross_entropy": (F.cross_entropy, {}, lambda s, y: -math.log(softmax(s)[y])),
    "focal": (
        F.focal,
        {"gamma": 1.5},
        lambda s, y: (1 - softmax(s)[y]) ** 1.5 * -math.log(softmax(s)[y]),
    ),
    "ldam": (F.ldam, {"margins": MARGINS, "scale": 5.0}, ldam),
    "balanced_softmax": (F.balanced_softmax, {"class_counts": COUNTS}, lambda s, y: adjusted(s, y, 1.0)),
    "logit_adjusted": (
        F.logit_adjusted,
        {"class_counts": COUNTS, "tau": 0.5},
        lambda s, y: adjusted(s, y, 0.5),
    ),
    **{
        f"{name}-{k}": (function, {"k": k, **rest}, lambda s, y, oracle=oracle, k=k: oracle(s, y, k))
        for k in range(1, CLASSES)
        for name, function, rest, oracle in [
            ("smooth", F.smooth_topk_svm, {"tau": 0.7, "margin": 0.8}, smooth),
            ("grouping", F.topk_grouping, {}, grouping),
            ("transition", F.topk_transition, {}, transition),
            ("truncated", F.truncated_topk_entropy, {}, truncated),
            ("convex", F.convex_topk_hinge, {"margin": 0.8}, convex),
            (
                "hinge",
                F.topk_hinge,
                {"margin": 0.8},
                lambda s, y, k: max(0.0, 0.8 + sorted(s[:y] + s[y + 1 :])[-k] - s[y]),
            ),
            (
                "calibrated",
                F.calibrated_topk_hinge,
                {"margin": 0.8},
                lambda s, y, k: max(0.0, 0.8 + sorted(s)[-k - 1] - s[y]),
            ),
            (
                "noised",
                F.noised_topk_hinge,
                {"margin": 0.8, "epsilon": 0.0},
                lambda s, y, k: max(0.0, 0.8 + sorted(s)[-k - 1] - s[y]),
            ),
        ]
    },
}
HARD_ONLY = ("smooth",)


@pytest.mark.parametrize("case", CASES)
def test_loss_is_its_definition(case):
    function, arguments, oracle = CASES[case]
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(40, CLASSES, generator=generator, dtype=torch.float64)
    target = torch.randint(CLASSES, (40,), generator=generator)
    losses = function(scores, target, **arguments, reduction="none")
    expected = [oracle(s, y) for s, y in zip(scores.tolist(), target.tolist(), strict=True)]
    torch.testing.assert_close(losses, scores.new_tensor(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith(HARD_ONLY)])
def test_soft_target_is_the_expected_loss(case):
    function, arguments, _ = CASES[case]
    generator = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(20, CLASSES, generator=generator, dtype=torch.float64)
    target = torch.rand(20, CLASSES, generator=generator, dtype=torch.float64).softmax(1)
    expected = sum(
        target[:, c] * function(scores, torch.full((20,), c), **arguments, reduction="none")
        for c in range(CLASSES)
    )
    torch.testing.assert_close(function(scores, target, **arguments, reduction="none"), expected)


@pytest.mark.parametrize("case", CASES)
def test_gradient_is_the_derivative(case):
    function, arguments, _ = CASES[case]
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(8, CLASSES, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(CLASSES, (8,), generator=generator)
    assert torch.autograd.gradcheck(
        lambda s: function(s, target, **arguments, reduction="none"), scores, eps=1e-7, atol=1e-6
    )
