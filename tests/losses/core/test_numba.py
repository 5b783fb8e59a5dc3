"""The way to machine code: threads, and life without Numba."""

import importlib.util
import sys

import pytest
import torch

from topk_losses import functional, use_backend
from topk_losses._core import numba


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
