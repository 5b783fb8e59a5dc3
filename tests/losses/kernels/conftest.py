"""The kernels on whatever runs them: a CUDA device, or with TRITON_INTERPRET=1 Triton's interpreter on the CPU.

``core/test_triton.py`` beside it runs this folder in the interpreter, in a process of its own, since Triton reads
the variable when it is imported.
"""

import os

import pytest
import torch

from topk_losses import functional, use_backend
from topk_losses._core import triton
from topk_losses._noised import cuda as noised_cuda
from topk_losses._smooth_svm import cuda as smooth_cuda

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


@pytest.fixture(params=["cpu" if INTERPRETED else CUDA])
def device(request):
    """The device whose tensors the kernels take; that they fail and leave it to torch is an error."""
    request.node.add_marker(pytest.mark.filterwarnings("error:Triton's kernels"))
    with use_backend("triton"):
        yield request.param


@pytest.fixture
def smooth(device):
    """``smooth_topk_svm`` for calls that the kernels have to take."""

    def loss(scores, target, k, *args, **keywords):
        assert smooth_cuda.refusal(scores, target, k, asked=True) is None
        return functional.smooth_topk_svm(scores, target, k, *args, **keywords)

    return loss


@pytest.fixture
def noised(device):
    """``noised_topk_hinge`` for calls that the kernels have to take."""

    def loss(scores, target, k, epsilon=0.2, samples=10, *args, **keywords):
        assert noised_cuda.refusal(scores, target, k, samples, asked=True) is None
        return functional.noised_topk_hinge(scores, target, k, epsilon, samples, *args, **keywords)

    return loss


@pytest.fixture
def draws(device):
    """The kernel's noise ``(B, N, L)`` for the seed that a generator gives next."""
    from topk_losses._noised import cuda_kernels

    def draw(generator, samples, rows, classes):
        seed = torch.randint(2**63 - 1, (1,), generator=generator, device=device)
        width = max(4, 1 << (samples - 1).bit_length())
        out = torch.empty(rows, classes, width, device=device)
        block = max(16, 1 << (classes - 1).bit_length())
        # Some 128 Gaussians a thread: with a thousand, as a row's own warps would make them, ptxas takes minutes.
        options = triton.launch_options(block) | {"num_warps": min(32, max(4, block * width // 4096))}
        cuda_kernels.noise[(rows,)](seed, out, classes, DRAWS=width, BLOCK=block, **options)
        return out[:, :, :samples].permute(2, 0, 1)

    return draw


@pytest.fixture
def generator(device):
    """A function of a seed: a generator on the device."""
    return lambda seed: torch.Generator(device).manual_seed(seed)


@pytest.fixture
def batch(device):
    """A function of rows, classes, spread and seed: float32 scores and labels on the device."""

    def draw(rows, classes, spread=2.0, seed=0, dtype=torch.float32):
        source = torch.Generator().manual_seed(seed)
        scores = (spread * torch.randn(rows, classes, generator=source)).to(dtype)
        return scores.to(device), torch.randint(classes, (rows,), generator=source).to(device)

    return draw
