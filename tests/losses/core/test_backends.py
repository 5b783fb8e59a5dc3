"""Which backend computes a call: asked for by name, explained, and reported."""

import importlib.metadata
import threading
from functools import partial

import pytest
import torch

import topk_losses
from topk_losses import BackendChoice, backend, explain_backend, functional, use_backend
from topk_losses._core import backends as gate
from topk_losses._core import numba, triton
from topk_losses._smooth_svm.cpu import MOST_K

needs_numba = pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
needs_triton = pytest.mark.skipif(not triton.is_there(), reason="needs Triton")

NOT_CUDA = "the scores are not on a CUDA device"


def batch(classes=100, rows=4, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, classes, generator=generator, dtype=dtype)
    return scores, torch.randint(classes, (rows,), generator=generator)


def chosen(loss, *inputs, **options):
    return [choice.backend for choice in explain_backend(loss, *inputs, **options)]


@pytest.mark.parametrize("name", ["numba", "triton"])
def test_a_backend_that_is_not_installed_is_refused(name, monkeypatch):
    monkeypatch.setitem(topk_losses.backends._IS_THERE, name, lambda: False)
    with pytest.raises(ValueError, match=f"name must be a backend that is installed, got '{name}'"):
        use_backend(name)
    with use_backend("torch"), use_backend("auto"):
        pass


def test_an_error_leaves_the_context_too():
    with pytest.raises(ZeroDivisionError), use_backend("torch"):
        raise ZeroDivisionError
    assert gate.wanted() == "auto"
    with use_backend("torch"):
        with pytest.raises(ValueError, match="k must be"):
            functional.topk_hinge(*batch(), 1000)
        assert gate.wanted() == "torch"


def test_an_explanation_that_fails_leaves_nothing_behind():
    with pytest.raises(ValueError, match="k must be"):
        explain_backend(functional.topk_hinge, *batch(), 1000)
    assert gate._CHOICES.get() is None


def test_another_threads_setting_is_its_own():
    entered, done = threading.Event(), threading.Event()

    def stay():
        with use_backend("torch"):
            entered.set()
            done.wait(60)

    thread = threading.Thread(target=stay)
    thread.start()
    entered.wait(60)
    assert gate.wanted() == "auto"
    done.set()
    thread.join()


def test_a_function_can_be_decorated():
    @use_backend("torch")
    def inner(depth):
        """What it does."""
        return (gate.wanted(), *(inner(depth - 1) if depth else ()))

    assert inner(2) == ("torch",) * 3
    assert inner.__doc__ == "What it does."
    assert gate.wanted() == "auto"


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize(
    ("loss", "operations"),
    [
        (functional.topk_hinge, ["largest"]),
        (functional.topk_transition, ["topk_grouping", "largest"]),
        (functional.topk_entropy, ["largest", "exponentials"]),
        (functional.lapsum_topk_loss, ["soft_topk", "largest"]),
        (partial(functional.sorting_topk_cross_entropy, candidates=4), ["sorting", "largest"]),
        (functional.smooth_topk_hinge, ["smooth_topk_hinge", "largest"]),
        (functional.smooth_topk_svm, ["smooth_topk_svm"]),
        (functional.noised_topk_hinge, ["noised_topk_hinge"]),
    ],
)
def test_few_classes_are_for_numba_where_it_is_asked_for_and_never_where_torch_is(loss, operations):
    scores, target = batch(12)
    with use_backend("numba"):
        result = explain_backend(loss, scores, target, 2)
        value = loss(scores, target, 2)
    assert [choice.operation for choice in result] == operations
    assert {choice.backend for choice in result} == {"numba"}
    with use_backend("torch"):
        result = explain_backend(loss, scores, target, 2)
        plain = loss(scores, target, 2)
    assert {choice.backend for choice in result} == {"torch"}
    assert {reason for choice in result for reason in choice.refusals.values()} == {"use_backend('torch')"}
    if loss is not functional.noised_topk_hinge:  # other noise
        torch.testing.assert_close(value, plain)


@pytest.mark.parametrize(
    "loss",
    [functional.cross_entropy, functional.focal, topk_losses.CrossEntropy(), torch.nn.CrossEntropyLoss()],
)
def test_losses_without_kernels_have_nothing_to_choose(loss):
    assert explain_backend(loss, *batch()) == []


@needs_numba
def test_one_choice_for_each_operation_in_their_order():
    scores, target = batch(400)
    assert explain_backend(functional.topk_entropy, scores, target, 3) == [
        BackendChoice("largest", "numba", {}),
        BackendChoice("exponentials", "numba", {}),
    ]
    assert explain_backend(topk_losses.SmoothTopKSVM(3), scores, target) == [
        BackendChoice("smooth_topk_svm", "numba", {"triton": NOT_CUDA})
    ]
    both = explain_backend(
        lambda: functional.topk_hinge(scores, target, 3) + functional.smooth_topk_svm(scores, target, k=3)
    )
    assert [choice.operation for choice in both] == ["largest", "smooth_topk_svm"]


@needs_numba
def test_why_few_classes_are_left_to_torch():
    scores, target = batch(8)
    fast = {"numba": "torch is as fast for so few classes"}
    assert explain_backend(functional.topk_entropy, scores, target, 3) == [
        BackendChoice("largest", "torch", fast),
        BackendChoice("exponentials", "torch", fast),
    ]
    many, labels = batch(8, 5000)
    [choice] = explain_backend(functional.smooth_topk_svm, many, labels, 3)
    assert choice.backend == "torch"
    assert choice.refusals["numba"] == "torch is faster for so few classes and so many samples"
    with use_backend("numba"):
        assert chosen(functional.smooth_topk_svm, many, labels, 3) == ["numba"]


@needs_numba
@pytest.mark.parametrize("asked", ["auto", "numba"])
def test_why_a_call_is_left_to_torch(asked):
    """Asked for by name or not: what the kernels cannot have goes through torch."""
    scores, target = batch()
    wide, soft = "the kernels do not take torch.float64", scores.softmax(1)
    svm, hinge = functional.smooth_topk_svm, functional.topk_hinge
    noised = functional.noised_topk_hinge
    cases = [
        (svm, (scores.double(), target, 3), wide),
        (hinge, (scores.double(), target, 3), wide),
        (hinge, (scores, target, 60), "k is above 128 or half of the classes"),
        (noised, (scores, soft, 3), "the targets are soft, or on another device"),
        (noised, (scores, target, 64), "k is above 64"),
        (svm, (*batch(400), MOST_K + 1), f"k is above {MOST_K}"),
    ]
    with use_backend(asked):
        for loss, inputs, reason in cases:
            choice = explain_backend(loss, *inputs)[0]
            assert choice.backend == "torch"
            assert choice.refusals["numba"] == reason
            if asked == "numba":
                assert choice.refusals.get("triton") == (None if loss is hinge else "use_backend('numba')")


@needs_numba
def test_soft_targets_of_losses_that_do_not_mind_take_the_kernels_for_rows():
    scores, _ = batch()
    assert chosen(functional.topk_hinge, scores, scores.softmax(1), 3) == ["numba"]
    # The union's own kernel is for one label per row.
    [choice] = explain_backend(functional.topk_grouping, scores, scores.softmax(1), 3)
    assert choice.operation == "largest"


@needs_numba
@pytest.mark.parametrize("asked", ["auto", "numba", "torch"])
def test_a_graph_has_plain_operations_whatever_is_asked_for(asked):
    scores, target = batch(400)
    expected = functional.topk_entropy(scores, target, 3)
    whole = torch.compile(functional.topk_entropy, backend="eager", fullgraph=True)
    with use_backend(asked):
        result = explain_backend(whole, scores, target, 3)
        torch.testing.assert_close(whole(scores, target, 3), expected)
    assert all(choice.backend == "torch" for choice in result)


@needs_numba
def test_the_backend_of_the_cpu():
    version = f"numba {importlib.metadata.version('numba')}"
    assert backend() == backend("cpu") == version
    with use_backend("torch"):
        assert backend("cpu") == "torch"
    with use_backend("numba"):
        assert backend("cpu") == version
        assert backend("cuda") == "torch"
    assert backend("cpu") == version


@needs_triton
def test_the_backend_of_cuda_devices():
    version = f"triton {importlib.metadata.version('triton')}"
    assert backend("cuda") == version
    with use_backend("triton"):
        assert backend("cuda") == version
        assert backend("cpu") == "torch"
    with use_backend("torch"):
        assert backend("cuda") == "torch"


def test_other_devices_have_torch(monkeypatch):
    assert backend("mps") == backend("meta") == "torch"
    monkeypatch.setitem(topk_losses.backends._IS_THERE, "numba", lambda: False)
    assert backend("cpu") == "torch"


@needs_numba
def test_gradients_are_of_the_backend_that_computed_the_loss():
    """A gradient that is asked for outside of the context belongs to what was computed inside."""
    scores, target = batch(8)
    result = []
    for inside, outside in (("numba", "torch"), ("torch", "numba")):
        leaf = scores.clone().requires_grad_()
        with use_backend(inside):
            loss = functional.topk_entropy(leaf, target, 2)
        with use_backend(outside):
            result.append(torch.autograd.grad(loss, leaf)[0])
    torch.testing.assert_close(*result)
