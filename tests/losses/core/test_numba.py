"""The way to machine code: threads, and life without Numba."""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from topk_losses import functional, use_backend
from topk_losses._core import numba
from topk_losses._sorting import cpu as sorting


@pytest.fixture
def numba_fails(monkeypatch):
    """A Numba that is installed and cannot be imported."""
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    numba.is_there.cache_clear()
    yield
    numba.is_there.cache_clear()


def test_a_numba_that_cannot_be_imported_leaves_the_losses_to_torch(numba_fails):
    scores = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="losses run in plain torch"):
        assert functional.smooth_topk_svm(scores, torch.arange(4), 5).isfinite()


@pytest.mark.parametrize(("rows", "at_least", "parts"), [(10, 1, 3), (10, 4, 2), (10, 11, 1), (0, 1, 1)])
def test_rows_are_shared_among_as_many_threads_as_torch_has(rows, at_least, parts, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    done = []
    numba.in_parts(lambda first, last: done.append(range(first, last)), rows, at_least)
    assert len(done) == parts
    assert sorted(row for part in done for row in part) == list(range(rows))


def test_an_error_in_a_thread_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)

    def fails(first, last):
        if first:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        numba.in_parts(fails, 4, 1)


SMALL = {
    "smooth_topk_svm": {"tau": 0.1},
    "topk_grouping": {},
    "topk_transition": {},
    "topk_entropy": {},
    "truncated_topk_entropy": {},
    "lapsum_topk_loss": {"temperature": 0.5},
    "soft_topk_loss": {"tau": 0.3},
}


@pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
@pytest.mark.parametrize("name", SMALL)
def test_kernels_return_zeros_in_place_of_subnormal_gradients(name):
    scores = 30 * torch.randn(16, 300, generator=torch.Generator().manual_seed(0))
    labels = scores.topk(5).indices[:, 0]
    gradients = {}
    for backend in ("torch", "numba"):
        leaf = scores.clone().requires_grad_()
        with use_backend(backend):
            getattr(functional, name)(leaf, labels, 5, **SMALL[name]).backward()
        gradients[backend] = leaf.grad
    smallest = torch.finfo(torch.float32).tiny

    def subnormal(backend):
        return (gradients[backend] != 0) & (gradients[backend].abs() < smallest)

    assert subnormal("torch").any()
    assert not subnormal("numba").any()
    torch.testing.assert_close(gradients["numba"], gradients["torch"], rtol=1e-4, atol=1e-7)


COMPILED = {
    **dict.fromkeys(("topk_hinge", "topk_transition", "truncated_topk_entropy", "topk_entropy"), (4,)),
    **dict.fromkeys(("lapsum_topk_loss", "smooth_topk_hinge", "sorting_topk_cross_entropy"), (4,)),
    "smooth_topk_svm": (4, 0.03),
    "soft_topk_loss": (4, 0.5, "gaussian"),
    "noised_topk_hinge": (4, 0.2, 20),
    "noised_topk_hinge, exact": (4, 0.2, None),
}


@pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
@pytest.mark.parametrize("name", COMPILED)
def test_threads_and_missing_gradients_change_nothing(name, monkeypatch):
    monkeypatch.setattr(numba, "SCORES_PER_THREAD", 200)
    monkeypatch.setattr(sorting, "COMPARED_PER_THREAD", 200)
    source = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(200, 60, generator=source)
    labels = torch.randint(60, (200,), generator=source)
    loss, results = getattr(functional, name.partition(",")[0]), []
    drawing = {"generator": torch.Generator()} if loss is functional.noised_topk_hinge else {}
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            for leaf in (scores.clone().requires_grad_(), scores):
                for own in drawing.values():
                    own.manual_seed(1)
                with use_backend("numba"):
                    losses = loss(leaf, labels, *COMPILED[name], reduction="none", **drawing)
                slopes = torch.autograd.grad(losses.sum(), leaf)[0] if leaf.requires_grad else None
                results.append((losses.detach(), slopes))
    finally:
        torch.set_num_threads(before)
    bound = 3e-7 if "exact" in name else 0  # of values alone the crowds are not swept
    for losses, slopes in results[1:]:
        torch.testing.assert_close(losses, results[0][0], rtol=0, atol=bound)
        assert slopes is None or torch.equal(slopes, results[0][1])


EVERYTHING = """
import sys
import torch
from topk_losses import functional as f, use_backend
from topk_losses._smooth_svm import cpu_kernels
assert hasattr(cpu_kernels.smooth_forward, "py_func") is (sys.argv[2] == "0")
source = torch.Generator().manual_seed(0)
spreads = torch.tensor([[0.05], [0.3], [3.0], [30.0], [0.0]])
scores, target = spreads * torch.randn(5, 70, generator=source), torch.randint(70, (5,), generator=source)
calls = {
    **{f"svm {k} {tau}": (f.smooth_topk_svm, (k, tau)) for k, tau in ((1, 1.0), (5, 0.1), (20, 0.01))},
    **{f"exact {k}": (f.noised_topk_hinge, (k, 0.2, None)) for k in (1, 5)},
    **{name: (getattr(f, name), (4,)) for name in (
        "topk_hinge", "topk_transition", "topk_grouping", "truncated_topk_entropy", "topk_entropy",
        "smooth_topk_hinge", "lapsum_topk_loss", "soft_topk_loss", "sorting_topk_cross_entropy")},
    **{shape: (f.soft_topk_loss, (4, 0.7, shape, "error")) for shape in ("gaussian", "clip", "power")},
    **{f"drawn {k}": (f.noised_topk_hinge, (k, 0.2, 7)) for k in (1, 5)},
}
results = {}
with use_backend("numba"):
    for name, (loss, given) in calls.items():
        drawing = {"generator": torch.Generator().manual_seed(0)} if "drawn" in name else {}
        for dtype in (torch.float32, torch.float64):
            leaf = scores.to(dtype).requires_grad_()
            losses = loss(leaf, target, *given, reduction="none", **drawing)
            results[name, dtype] = losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]
torch.save(results, sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not numba.is_there(), reason="needs Numba")
def test_machine_code_does_what_python_does(tmp_path):
    """The same classes for the same seed, and numbers up to rounding, from rows that take every way."""
    results = []
    for disabled in ("0", "1"):
        path = str(tmp_path / disabled)
        command = [sys.executable, "-W", "ignore", "-c", EVERYTHING, path, disabled]
        run = subprocess.run(
            command, env={**os.environ, "NUMBA_DISABLE_JIT": disabled}, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        results.append(torch.load(path))
    for case, ours in results[0].items():
        for one, other in zip(ours, results[1][case], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=lambda m, c=case: f"{c}: {m}")
