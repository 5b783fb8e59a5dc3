"""Every loss keeps the contract that its package publishes."""

import functools

import pytest
import torch

import topk_losses
from topk_losses.testing import LossContract


def counts(classes):
    return [100 // (c + 1) + 1 for c in range(classes)]


def margins(classes):
    return torch.linspace(0.1, 0.7, classes).roll(classes // 3)


class TestCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.CrossEntropy(**shared)


class TestFocal(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.Focal(gamma=0.5, **shared)


class TestGeneralizedCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.GeneralizedCrossEntropy(gamma=0.6, **shared)


class TestLDAM(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.LDAM.from_counts(counts(self.classes), max_margin=0.5, scale=3.0, **shared)


class TestBalancedSoftmax(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.BalancedSoftmax(counts(self.classes), **shared)


class TestLogitAdjusted(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.LogitAdjusted(counts(self.classes), tau=0.5, **shared)


class TestVectorScaling(LossContract):
    soft_targets = True
    class_symmetric = False
    shift_invariant = False

    def make(self, **shared):
        return topk_losses.VectorScaling(counts(self.classes), tau=0.5, gamma=0.2, **shared)


class TestLabelSmoothing(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.LabelSmoothing(epsilon=0.2, **shared)


class TestMeanAbsoluteError(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.MeanAbsoluteError(**shared)


class TestSymmetricCrossEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.SymmetricCrossEntropy(alpha=0.5, beta=0.3, **shared)


class TestActivePassiveLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.ActivePassiveLoss(alpha=2.0, beta=0.5, **shared)


class TestActiveNegativeLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.ActivePassiveLoss(alpha=2.0, beta=0.5, passive="nnce", **shared)


class TestAsymmetricLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.AsymmetricLoss("aul", a=3.0, q=2.0, alpha=0.5, **shared)


class TestLogitClip(LossContract):
    soft_targets = True
    shift_invariant = False

    def make(self, **shared):
        return topk_losses.LogitClip(limit=3.0, **shared)


class TestEarlyLearning(LossContract):
    """On samples that were never seen before: what they are compared with is their first prediction, a constant."""

    derivable = False
    spatial = False
    vectorises = False

    def make(self, **shared):
        return topk_losses.EarlyLearning(100, self.classes, strength=0.5, **shared)

    def evaluate(self, loss, scores, target):
        getattr(loss, "_orig_mod", loss).memory = torch.zeros(100, scores.shape[-1])
        index = torch.arange(len(target))
        torch._dynamo.mark_dynamic(index, 0)
        return loss(scores, target, index=index)


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
        return topk_losses.TopKHinge(k=2, margin=margins(self.classes), **shared)


class TestSmoothTopKSVM(LossContract):
    def make(self, **shared):
        return topk_losses.SmoothTopKSVM(k=3, tau=0.5, **shared)


class TestSmoothTopKSVMWithMargins(LossContract):
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.SmoothTopKSVM(k=2, tau=0.5, margin=margins(self.classes), **shared)


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

    @pytest.mark.slow  # ten seconds of tracing
    def test_compiles_to_one_graph(self):
        super().test_compiles_to_one_graph()


class TestNoisedImbalancedTopKHinge(TestNoisedTopKHinge):
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.NoisedImbalancedTopKHinge.from_counts(
            counts(self.classes), k=3, epsilon=0.3, **shared
        )


class TestExactNoisedImbalancedTopKHinge(LossContract):
    soft_targets = True
    class_symmetric = False

    def make(self, **shared):
        return topk_losses.NoisedImbalancedTopKHinge.from_counts(
            counts(self.classes), k=3, epsilon=0.3, samples=None, **shared
        )

    @pytest.mark.slow  # the balanced one's, with a number
    def test_second_derivative(self):
        super().test_second_derivative()

    compiles = False  # it does: the balanced one's graph times a number, and ten seconds of tracing


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
    derivable = False

    def make(self, **shared):
        return topk_losses.TopKTransition(k=3, detach_weight=True, **shared)


class TestLapSumTopKLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.LapSumTopKLoss(k=3, temperature=0.5, **shared)


class TestAUTKC(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.AUTKC(k=3, **shared)


class TestAUTKCByHinges(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.AUTKC(k=3, surrogate="hinge", **shared)


class TestSoftTopKLoss(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=0.7, **shared)

    @pytest.mark.slow  # the steps of the search for the threshold are traced one by one
    def test_compiles_to_one_graph(self):
        super().test_compiles_to_one_graph()


class TestBoundedSoftTopK(LossContract):
    soft_targets = True
    compiles = False  # it does: the same graph but for its last line, and ten seconds of tracing

    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=0.7, form="error", **shared)

    @pytest.mark.slow  # some seconds for each of the shapes below; the logistic one's is above
    def test_second_derivative(self):
        super().test_second_derivative()


class TestLaplacianSoftTopK(TestBoundedSoftTopK):
    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=0.7, shape="laplace", form="error", **shared)


class TestGaussianSoftTopK(TestBoundedSoftTopK):
    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=1.5, shape="gaussian", **shared)


class TestClippedSoftTopK(TestBoundedSoftTopK):
    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=5.0, shape="clip", form="error", **shared)


class TestCubicSoftTopK(TestBoundedSoftTopK):
    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=5.0, shape="power", form="error", **shared)


class TestMidpointSoftTopK(TestBoundedSoftTopK):
    def make(self, **shared):
        return topk_losses.SoftTopKLoss(k=3, tau=0.7, shape="midpoint", **shared)


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

    compiles = False  # it does: the other network's graph with a few more layers, and ten seconds of tracing


class TestTopKEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TopKEntropy(k=3, **shared)


class TestTruncatedTopKEntropy(LossContract):
    soft_targets = True

    def make(self, **shared):
        return topk_losses.TruncatedTopKEntropy(k=3, **shared)


class TestTorchsCrossEntropy(LossContract):
    """A loss of others, which promises less."""

    soft_targets = True
    float32_inside = False
    names_arguments = False

    def make(self, **shared):
        return torch.nn.CrossEntropyLoss(**shared)


class Brier(topk_losses.Loss):
    """A loss of one's own, as `docs/use-a-loss.md` shows it."""

    def rows(self, scores, labels):
        return (1 - scores.softmax(1).gather(1, labels)) ** 2


class TestALossOfOnesOwn(LossContract):
    soft_targets = True

    def make(self, **shared):
        return Brier(**shared)


BACKENDS = ["torch"] if topk_losses.backend("cpu") == "torch" else ["torch", "numba"]
OF_OTHERS = {"TestTorchsCrossEntropy", "TestALossOfOnesOwn"}
CONTRACTS = {
    name.removeprefix("Test"): contract
    for name, contract in globals().items()
    if name.startswith("Test") and name not in OF_OTHERS
}
# Losses without kernels are the same whichever backend is chosen.
PLAIN = {
    *("CrossEntropy", "Focal", "GeneralizedCrossEntropy", "LDAM", "BalancedSoftmax", "LogitAdjusted"),
    *("VectorScaling", "LabelSmoothing", "MeanAbsoluteError", "SymmetricCrossEntropy", "ActivePassiveLoss"),
    *("ActiveNegativeLoss", "AsymmetricLoss", "LogitClip"),
}


def in_float32(contract):
    """The same contract where kernels compute, or would: float32, and enough classes for them."""

    class InFloat32(contract):
        classes = 100
        dtype = torch.float32
        twice_differentiable = False  # plain torch computes second derivatives, and float64 has checked them
        derivable = False  # checked in float64
        compiles = False  # a compiled graph has torch's operations alone, whatever the scores

    return InFloat32()


def checks(contract):
    """Yield every check of a contract: its name, and the call that makes it."""
    for name in dir(contract):
        check = getattr(contract, name)
        if name == "test_half_precision_is_float32_on_the_rounded_scores":
            for dtype in (torch.float16, torch.bfloat16):
                yield f"{name}, {dtype}", functools.partial(check, dtype)
        elif name.startswith("test_"):
            yield name, check


def run_checks(contract):
    """Return how many checks of a contract passed, and the errors of those that failed, by name."""
    passed, failed = 0, {}
    for name, check in checks(contract):
        try:
            check()
            passed += 1
        except pytest.skip.Exception:  # a property that the loss does not promise
            pass
        except Exception as error:  # noqa: BLE001 - all of them are reported together
            failed[name] = f"{type(error).__name__}: {error}"
    return passed, failed


# A slow test of plain torch: each class above tries it in float64, and test_invariance.py compares it with the kernels.
BESIDE_KERNELS = [name for name in CONTRACTS if name not in PLAIN and len(BACKENDS) > 1]


@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, BACKENDS[-1]) for name in CONTRACTS if name not in PLAIN]
    + [(name, "torch") for name in CONTRACTS if name in PLAIN]
    + [pytest.param(name, "torch", marks=pytest.mark.slow) for name in BESIDE_KERNELS],
)
def test_the_contract_holds_in_float32_by_every_backend(name, backend):
    """One test runs all checks of a loss: each is a class's own test above, in float64."""
    with topk_losses.use_backend(backend):
        passed, failed = run_checks(in_float32(CONTRACTS[name]))
    assert not failed, "\n".join(f"{check}: {error}" for check, error in failed.items())
    assert passed >= 12


class WrongInAllWays(topk_losses.Loss):
    """Depends on the order of the classes, on constants in the scores and on the other rows."""

    def rows(self, scores, labels):
        return 2 * scores.gather(1, labels) - scores[:, :1] + scores.mean()


def test_a_loss_that_breaks_the_contract_fails_the_checks_by_name():
    class Contract(LossContract):
        def make(self, **shared):
            return WrongInAllWays(**shared)

    _, failed = run_checks(in_float32(Contract))
    assert {"test_batch_split_in_two", "test_permuted_classes", "test_constant_added_to_a_row"} <= set(failed)
