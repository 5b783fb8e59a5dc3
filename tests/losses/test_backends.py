"""Kernels that are compiled, or read from disk, before they are needed."""

import subprocess
import sys

import pytest

from topk_losses import warm_up

pytest.importorskip("numba")

PROCESS = """
import torch
from numba.core import event
from topk_losses import TopKTransition, warm_up
loss, random = TopKTransition(k=3), torch.get_rng_state()
warm_up(loss, classes=100)
assert torch.equal(torch.get_rng_state(), random)
with event.install_recorder("numba:compile") as seen:
    loss(torch.randn(4, 120, requires_grad=True), torch.arange(4)).backward()
print(len(seen.buffer))
"""


@pytest.mark.slow
def test_nothing_is_left_to_compile_neither_forward_nor_backward(tmp_path, monkeypatch):
    """In a process of its own with an empty folder for machine code."""
    monkeypatch.setenv("TOPK_LOSSES_CACHE", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", PROCESS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 0
    assert list(tmp_path.rglob("*.nbc"))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="classes must be an int of at least 1, got 0"):
        warm_up(classes=0)


@pytest.mark.parametrize("classes", [2, 5])
def test_few_classes_are_enough(classes, plain_torch):
    warm_up(classes=classes)
