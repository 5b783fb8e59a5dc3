"""Every loss keeps the contract that its package publishes."""

import torch

import topk_losses
from topk_losses.testing import LossContract

COUNTS = [100, 50, 20, 10, 5, 2, 1]
MARGINS = torch.tensor([0.3, 0.1, 0.7, 0.2, 0.5, 0.4, 0.6])


class TestCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.CrossEntropy(**shared)


class TestFocal(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.Focal(gamma=0.5, **shared)


class TestLDAM(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.LDAM.from_counts(COUNTS, max_margin=0.5, scale=3.0, **shared)


class TestBalancedSoftmax(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.BalancedSoftmax(COUNTS, **shared)


class TestLogitAdjusted(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.LogitAdjusted(COUNTS, tau=0.5, **shared)


class TestTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKHinge(k=3, **shared)


class TestConvexTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.ConvexTopKHinge(k=3, **shared)


class TestCalibratedTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.CalibratedTopKHinge(k=3, **shared)


class TestHingeWithMargins(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.TopKHinge(k=2, margin=MARGINS, **shared)


class TestSmoothTopKSVM(LossContract):
    def make(self, **shared):
        return topk_losses.SmoothTopKSVM(k=3, tau=0.5, **shared)


class TestSmoothTopKSVMWithMargins(LossContract):
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.SmoothTopKSVM(k=2, tau=0.5, margin=MARGINS, **shared)


class TestNoisedTopKHinge(LossContract):
    soft_targets = True
    deterministic = False

    def make(self, **shared):
        return topk_losses.NoisedTopKHinge(k=3, epsilon=0.3, samples=5, **shared)

    def evaluate(self, loss, scores, target):
        return loss(scores, target, generator=torch.Generator().manual_seed(0))


class TestHardNoisedTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.NoisedTopKHinge(k=3, epsilon=0.0, **shared)


class TestExactNoisedTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.NoisedTopKHinge(k=3, epsilon=0.3, samples=None, **shared)


class TestNoisedImbalancedTopKHinge(TestNoisedTopKHinge):
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.NoisedImbalancedTopKHinge.from_counts(COUNTS, k=3, epsilon=0.3, **shared)


class TestExactNoisedImbalancedTopKHinge(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.NoisedImbalancedTopKHinge.from_counts(
            COUNTS, k=3, epsilon=0.3, samples=None, **shared
        )

    # The balanced one's graph times a number, and ten seconds of tracing.
    test_compiles_to_one_graph = None


class TestTopKGrouping(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKGrouping(k=3, **shared)


class TestTopKTransition(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKTransition(k=3, **shared)


class TestDetachedTopKTransition(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKTransition(k=3, detach_weight=True, **shared)

    # What is detached has no share in the gradient, which is therefore not the loss's derivative.
    test_gradient_is_the_derivative = None
    test_second_derivative = None


class TestLapSumTopKLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.LapSumTopKLoss(k=3, temperature=0.5, **shared)


class TestSmoothTopKHinge(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.SmoothTopKHinge(k=3, gamma=0.5, **shared)


class TestSortingTopKCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.SortingTopKCrossEntropy(k=3, candidates=4, mixture=(0.2, 0.0, 0.8), **shared)


class TestLogisticSortingTopKCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.SortingTopKCrossEntropy(k=3, candidates=8, relaxation="logistic", **shared)

    # The other network's graph with a few more layers, and ten seconds of tracing.
    test_compiles_to_one_graph = None


class TestTopKEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKEntropy(k=3, **shared)


class TestTruncatedTopKEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TruncatedTopKEntropy(k=3, **shared)
