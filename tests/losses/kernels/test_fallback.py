"""Kernels that cannot be compiled or launched leave the losses to plain torch, with one warning."""

import itertools
import subprocess
import warnings

import pytest
import torch

from topk_losses import functional, use_backend
from topk_losses._core import triton

KERNELS = {
    "smooth_topk_svm": ("smooth_forward", "smooth_backward"),
    "noised_topk_hinge": ("noised_candidates", "noised_draws", "noised_losses", "noised_backward"),
    "soft_topk_loss": ("soft_forward", "soft_backward"),
}
EACH = [(loss, kernel) for loss, kernels in KERNELS.items() for kernel in kernels]


class Fails:
    """In a kernel's place: raises the errors in turn when it is launched, and is the kernel when there are no more."""

    def __init__(self, kernel, errors):
        self.kernel = kernel
        self.errors = iter(errors)
        self.launches = 0

    def __getitem__(self, grid):
        error = next(self.errors, None)
        if error is not None:
            raise error
        self.launches += 1
        return self.kernel[grid]


def ptxas_error():
    from triton.runtime.errors import PTXASError

    return PTXASError("no such instruction")


@pytest.fixture
def broken(device, monkeypatch):
    """A function of a kernel's name and errors: what stands in its place; what was known of kernels is forgotten."""
    from topk_losses._noised import cuda_kernels as noised_kernels
    from topk_losses._smooth_svm import cuda_kernels as smooth_kernels
    from topk_losses._soft_topk import cuda_kernels as soft_kernels

    modules = {"smooth": smooth_kernels, "noised": noised_kernels, "soft": soft_kernels}

    def replace(name, errors):
        module = modules[name.split("_", maxsplit=1)[0]]
        kernel = Fails(getattr(module, name), errors)
        monkeypatch.setattr(module, name, kernel)
        return kernel

    monkeypatch.setattr(triton, "WARNED", set())
    triton._failure.cache_clear()
    yield replace
    triton._failure.cache_clear()


@pytest.fixture
def evaluate(batch, generator):
    """A function of a loss and a number of classes: value, gradient and the next number of its generator."""

    def results(loss, classes=40, **keywords):
        scores, target = batch(3, classes)
        source = generator(5)
        drawing = {"generator": source} if loss == "noised_topk_hinge" else {}
        leaf = scores.requires_grad_()
        value = getattr(functional, loss)(leaf, target, 3, **drawing, **keywords)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient, torch.rand(1, generator=source, device=scores.device)

    return results


@pytest.mark.parametrize(
    "make",
    [
        ptxas_error,
        lambda: RuntimeError("Triton Error [CUDA]: device kernel image is invalid"),
        lambda: subprocess.CalledProcessError(1, ["cc"]),
        lambda: PermissionError("no place for the cache"),
    ],
)
@pytest.mark.parametrize(("loss", "kernel"), EACH)
def test_torch_takes_over_with_one_warning(loss, kernel, make, broken, evaluate):
    """Loss, gradient and random numbers are those of plain torch, from the first call on."""
    with use_backend("torch"):
        expected = evaluate(loss)
    error = make()
    broken(kernel, itertools.repeat(error))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = [evaluate(loss) for _ in range(2)]
        margins = {} if loss == "soft_topk_loss" else {"margin": torch.ones(50, device=result[0][0].device)}
        evaluate(loss, classes=50, **margins)
    for results in result:
        assert all(map(torch.equal, results, expected))
    (warning,) = (one for one in caught if one.category is UserWarning)  # NumPy's of old interpreters aside
    reason = f"{loss} runs in plain torch: {type(error).__name__}: {error}"
    assert str(warning.message) == f"Triton's kernels cannot run, so {reason}"


@pytest.mark.parametrize(("loss", "kernel"), EACH)
def test_what_fails_for_some_rows_is_tried_for_others(loss, kernel, broken, evaluate):
    """Too many classes for a device's shared memory are no reason against fewer."""
    launched = broken(kernel, [RuntimeError("too large")])
    with pytest.warns(UserWarning, match="too large"):
        evaluate(loss)
    evaluate(loss)
    assert launched.launches == 0
    evaluate(loss, classes=30)
    assert launched.launches == 2  # once to try it


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("Triton Error [CUDA]: out of memory")],
)
@pytest.mark.parametrize(("loss", "kernel"), EACH)
def test_want_of_memory_is_raised_and_not_held_against_the_kernels(loss, kernel, error, broken, evaluate):
    launched = broken(kernel, [error])
    with pytest.raises(type(error), match="out of memory"):
        evaluate(loss)
    evaluate(loss)
    assert launched.launches == 2


def test_without_gradients_the_backward_kernel_is_not_asked_for(broken, batch):
    scores, target = batch(3, 40)
    broken("smooth_backward", [RuntimeError("no backward")])
    with torch.no_grad():
        value = functional.smooth_topk_svm(scores, target, 3)
    with pytest.warns(UserWarning, match="no backward"):
        again = functional.smooth_topk_svm(scores.requires_grad_(), target, 3)
    torch.testing.assert_close(value, again)
