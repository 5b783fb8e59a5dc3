"""Every loss keeps the contract that its package publishes."""

from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import topk_losses as tl
from topk_losses.testing import LossContract


def counts(classes):
    return [100 // (c + 1) + 1 for c in range(classes)]


def margins(classes):
    return torch.linspace(0.1, 0.7, classes).roll(classes // 3)


OF_CLASSES, LABELS_ALONE = {"class_symmetric": False}, {"soft_targets": False}
# Ten seconds of tracing for the graph of another loss here, but for its last line.
SAME_GRAPH = {"compiles": False}
LOSSES = {
    "CrossEntropy": (lambda _: tl.CrossEntropy, {}),
    "Focal": (lambda _: partial(tl.Focal, gamma=0.5), {}),
    "GeneralizedCrossEntropy": (lambda _: partial(tl.GeneralizedCrossEntropy, gamma=0.6), {}),
    "LDAM": (lambda n: partial(tl.LDAM.from_counts, counts(n), max_margin=0.5, scale=3.0), OF_CLASSES),
    "BalancedSoftmax": (lambda n: partial(tl.BalancedSoftmax, counts(n)), OF_CLASSES),
    "LogitAdjusted": (lambda n: partial(tl.LogitAdjusted, counts(n), tau=0.5), OF_CLASSES),
    "VectorScaling": (
        lambda n: partial(tl.VectorScaling, counts(n), tau=0.5, gamma=0.2),
        {**OF_CLASSES, "shift_invariant": False},
    ),
    "LabelSmoothing": (lambda _: partial(tl.LabelSmoothing, epsilon=0.2), {}),
    "MeanAbsoluteError": (lambda _: tl.MeanAbsoluteError, {}),
    "SymmetricCrossEntropy": (lambda _: partial(tl.SymmetricCrossEntropy, alpha=0.5, beta=0.3), {}),
    "ActivePassiveLoss": (lambda _: partial(tl.ActivePassiveLoss, alpha=2.0, beta=0.5), {}),
    "ActiveNegativeLoss": (lambda _: partial(tl.ActivePassiveLoss, alpha=2.0, beta=0.5, passive="nnce"), {}),
    "AsymmetricLoss": (lambda _: partial(tl.AsymmetricLoss, "aul", a=3.0, q=2.0, alpha=0.5), {}),
    "LogitClip": (lambda _: partial(tl.LogitClip, limit=3.0), {"shift_invariant": False}),
    "TopKHinge": (lambda _: partial(tl.TopKHinge, k=3), {}),
    "ConvexTopKHinge": (lambda _: partial(tl.ConvexTopKHinge, k=3), {}),
    "CalibratedTopKHinge": (lambda _: partial(tl.CalibratedTopKHinge, k=3), {}),
    "HingeWithMargins": (lambda n: partial(tl.TopKHinge, k=2, margin=margins(n)), OF_CLASSES),
    "SmoothTopKSVM": (lambda _: partial(tl.SmoothTopKSVM, k=3, tau=0.5), LABELS_ALONE),
    "SmoothTopKSVMWithMargins": (
        lambda n: partial(tl.SmoothTopKSVM, k=2, tau=0.5, margin=margins(n)),
        {**OF_CLASSES, **LABELS_ALONE},
    ),
    "HardNoisedTopKHinge": (lambda _: partial(tl.NoisedTopKHinge, k=3, epsilon=0.0), {}),
    "ExactNoisedTopKHinge": (lambda _: partial(tl.NoisedTopKHinge, k=3, epsilon=0.3, samples=None), {}),
    "ExactNoisedImbalancedTopKHinge": (
        lambda n: partial(
            tl.NoisedImbalancedTopKHinge.from_counts, counts(n), k=3, epsilon=0.3, samples=None
        ),
        {**OF_CLASSES, **SAME_GRAPH},
    ),
    "TopKGrouping": (lambda _: partial(tl.TopKGrouping, k=3), {}),
    "TopKTransition": (lambda _: partial(tl.TopKTransition, k=3), {}),
    "DetachedTopKTransition": (
        lambda _: partial(tl.TopKTransition, k=3, detach_weight=True),
        {"derivable": False},
    ),
    "LapSumTopKLoss": (lambda _: partial(tl.LapSumTopKLoss, k=3, temperature=0.5), {}),
    "AUTKC": (lambda _: partial(tl.AUTKC, k=3), {}),
    "AUTKCByHinges": (lambda _: partial(tl.AUTKC, k=3, surrogate="hinge"), {}),
    "SoftTopKLoss": (lambda _: partial(tl.SoftTopKLoss, k=3, tau=0.7), {}),
    "BoundedSoftTopK": (lambda _: partial(soft_topk, "logistic", 0.7, form="error"), SAME_GRAPH),
    "LaplacianSoftTopK": (lambda _: partial(soft_topk, "laplace", 0.7, form="error"), SAME_GRAPH),
    "GaussianSoftTopK": (lambda _: partial(soft_topk, "gaussian", 1.5), SAME_GRAPH),
    "ClippedSoftTopK": (lambda _: partial(soft_topk, "clip", 5.0, form="error"), SAME_GRAPH),
    "CubicSoftTopK": (lambda _: partial(soft_topk, "power", 5.0, form="error"), SAME_GRAPH),
    "MidpointSoftTopK": (lambda _: partial(soft_topk, "midpoint", 0.7), SAME_GRAPH),
    "SmoothTopKHinge": (lambda _: partial(tl.SmoothTopKHinge, k=3, gamma=0.5), {}),
    "SortingTopKCrossEntropy": (
        lambda _: partial(tl.SortingTopKCrossEntropy, k=3, candidates=4, mixture=(0.2, 0.0, 0.8)),
        {},
    ),
    "LogisticSortingTopKCrossEntropy": (
        lambda _: partial(tl.SortingTopKCrossEntropy, k=3, candidates=8, relaxation="logistic"),
        SAME_GRAPH,
    ),
    "TopKEntropy": (lambda _: partial(tl.TopKEntropy, k=3), {}),
    "TruncatedTopKEntropy": (lambda _: partial(tl.TruncatedTopKEntropy, k=3), {}),
}
"""What makes a loss for so many classes, and what it does not promise; soft targets are taken by all but the SVM."""


def soft_topk(shape, tau, **options):
    return tl.SoftTopKLoss(k=3, tau=tau, shape=shape, **options)


class Contract(LossContract):
    """The published contract, and what it does not ask of the losses of others."""

    def test_derivatives_in_forward_mode(self):
        self.promised("derivable")
        scores, target = self.sample(rows=3)
        scores = scores.double().requires_grad_()
        own = {"check_forward_ad": True, "check_backward_ad": False}
        assert torch.autograd.gradcheck(lambda s: self.each(s, target), scores, **own)

    def test_hessian_by_both_modes(self):
        self.promised("derivable", "twice_differentiable", "vectorises")
        scores, target = self.sample(rows=2)

        def total(s):
            return self.evaluate(self.make(), s, target)

        self.agree(torch.func.hessian(total)(scores), torch.autograd.functional.hessian(total, scores))

    def test_default_device_changes_nothing(self):
        scores, target = self.sample()
        loss = self.make(reduction="sum")
        expected = self.evaluate(loss, scores, target), self.gradient(scores, target, loss)
        with torch.device("meta"):
            assert torch.equal(self.evaluate(loss, scores, target), expected[0])
            assert torch.equal(self.gradient(scores, target, loss), expected[1])

    @pytest.mark.parametrize("values", ["none", "fake"])
    def test_shapes_alone_suffice(self, values):
        with torch.device("meta") if values == "none" else FakeTensorMode():
            scores = torch.empty(6, self.classes, dtype=self.dtype, requires_grad=True)
            losses = self.each(scores, torch.zeros(6, dtype=torch.int64))
            assert losses.shape == (6,)
            assert torch.autograd.grad(losses.sum(), scores)[0].shape == scores.shape

    def test_exports_for_any_number_of_rows(self):
        self.promised("compiles", "deterministic")
        loss = self.make().eval()  # so that EarlyLearning needs no index
        rows = {0: torch.export.Dim("rows", min=2, max=1024)}
        exported = torch.export.export(loss, self.sample(), dynamic_shapes=(rows, rows)).module()
        for count in (2, 9, 300):
            scores, target = self.sample(count)
            self.agree(exported(scores, target), loss(scores, target), f"{count} rows")


def contract(name, loss, promises):
    """The class of a loss's tests, as one writes it by hand."""
    body = {"make": lambda self, **shared: loss(self.classes)(**shared), "soft_targets": True, **promises}
    return type(f"Test{name}", (Contract,), {**body, "__module__": __name__})


globals().update({f"Test{name}": contract(name, *of) for name, of in LOSSES.items()})


class TestEarlyLearning(Contract):
    """On samples that were never seen before: what they are compared with is their first prediction, a constant."""

    derivable = False
    spatial = False
    vectorises = False

    def make(self, **shared):
        return tl.EarlyLearning(100, self.classes, strength=0.5, **shared)

    def evaluate(self, loss, scores, target):
        getattr(loss, "_orig_mod", loss).memory = torch.zeros(100, scores.shape[-1], device=scores.device)
        index = torch.arange(len(target), device=target.device)
        torch._dynamo.mark_dynamic(index, 0)
        return loss(scores, target, index=index)


class TestNoisedTopKHinge(Contract):
    soft_targets = True
    deterministic = False

    def make(self, **shared):
        return tl.NoisedTopKHinge(k=3, epsilon=0.3, samples=5, **shared)

    def evaluate(self, loss, scores, target):
        return loss(scores, target, generator=torch.Generator().manual_seed(0))


class TestNoisedImbalancedTopKHinge(TestNoisedTopKHinge):
    class_symmetric = False

    def make(self, **shared):
        return tl.NoisedImbalancedTopKHinge.from_counts(counts(self.classes), k=3, epsilon=0.3, **shared)


class TestTorchsCrossEntropy(LossContract):
    """A loss of others, which promises less."""

    soft_targets = True
    float32_inside = False
    names_arguments = False

    def make(self, **shared):
        return torch.nn.CrossEntropyLoss(**shared)


class Brier(tl.Loss):
    """A loss of one's own, as `docs/use-a-loss.md` shows it."""

    def rows(self, scores, labels):
        return (1 - scores.softmax(1).gather(1, labels)) ** 2


class TestALossOfOnesOwn(LossContract):
    soft_targets = True

    def make(self, **shared):
        return Brier(**shared)


BACKENDS = ["torch"] if tl.backend("cpu") == "torch" else ["torch", "numba"]
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
        cases = {
            "test_half_precision_is_float32_on_the_rounded_scores": (torch.float16, torch.bfloat16),
            "test_shapes_alone_suffice": ("none", "fake"),
        }
        if name in cases:
            for case in cases[name]:
                yield f"{name}, {case}", partial(check, case)
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
    with tl.use_backend(backend):
        passed, failed = run_checks(in_float32(CONTRACTS[name]))
    assert not failed, "\n".join(f"{check}: {error}" for check, error in failed.items())
    assert passed >= 12


class WrongInAllWays(tl.Loss):
    """Depends on the order of the classes, on constants in the scores and on the other rows."""

    def rows(self, scores, labels):
        return 2 * scores.gather(1, labels) - scores[:, :1] + scores.mean()


def test_a_loss_that_breaks_the_contract_fails_the_checks_by_name():
    class Contract(LossContract):
        def make(self, **shared):
            return WrongInAllWays(**shared)

    _, failed = run_checks(in_float32(Contract))
    assert {"test_batch_split_in_two", "test_permuted_classes", "test_constant_added_to_a_row"} <= set(failed)
