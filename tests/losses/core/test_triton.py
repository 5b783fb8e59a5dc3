"""The Triton kernels without a GPU: run by Triton's interpreter, compiled for devices, and out of the way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from topk_losses import functional
from topk_losses._core import triton
from topk_losses._noised.cuda import CHUNK, GROUPS, LEAST_CAPACITY
from topk_losses._soft_topk.cuda import SCORES_PER_THREAD
from topk_losses._soft_topk.shapes import CODES

FOLDER = Path(__file__).parents[1] / "kernels"
KERNELS = ("test_smooth_kernel.py", "test_fallback.py", "test_noised_kernel.py", "test_soft_topk_kernel.py")
INTERFACE = ("test_kernel_interface.py",)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the same tests run on the device itself")
@pytest.mark.parametrize(
    ("files", "which"),
    [
        pytest.param(KERNELS, "not slow", marks=pytest.mark.slow),
        pytest.param(INTERFACE, "not slow", marks=pytest.mark.slow),
        pytest.param((*KERNELS, *INTERFACE), "slow", marks=pytest.mark.slow),
    ],
)
def test_in_the_interpreter(files, which):
    """Processes of their own, since Triton reads the variable when it is imported."""
    pytest.importorskip("triton")
    chosen = ["-m", f"{which} and not gpu", *(str(FOLDER / file) for file in files)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    nothing_slow = which == "slow" and run.returncode == pytest.ExitCode.NO_TESTS_COLLECTED
    assert nothing_slow or run.returncode == 0, run.stdout + run.stderr
    assert nothing_slow or " passed" in run.stdout


def compile_kernel(kernel, types, capability, warps=None, **constants):
    """The machine code of a kernel for a device of that capability, which need not be there."""
    from triton import compile as compile_source
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    options = triton.launch_options(constants["BLOCK"], warps)
    source = ASTSource(kernel, signature, constants)
    return compile_source(source, target=GPUTarget("cuda", capability, 32), options=options)


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


COMMON = {
    "labels": "*i64",
    **dict.fromkeys(("margins", "losses", "gradients"), "*fp32"),
    **dict.fromkeys(("stride", "gradient_stride", "classes", "ignored"), "i32"),
}
SMOOTH = {
    **COMMON,
    **dict.fromkeys(("kept", "by_margins"), "*fp32"),
    **dict.fromkeys(("scale_high", "scale_low", "inverse_high", "inverse_low"), "fp32"),
    **dict.fromkeys(("margin_high", "margin_low", "tau", "scale"), "fp32"),
}
NOISED = {
    **COMMON,
    "seeds": "*i64",
    **dict.fromkeys(("active", "centres", "largest"), "*fp32"),
    **dict.fromkeys(("places", "kept", "numbers"), "*i32"),
    **dict.fromkeys(("share", "draws"), "i32"),
    **dict.fromkeys(("epsilon", "margin"), "fp32"),
}
SOFT = {
    **COMMON,
    "kept": "*fp32",
    "k": "i32",
    **dict.fromkeys(("inverse", "inverse_high", "inverse_low", "below", "beyond"), "fp32"),
}
# Shared memory that a block may have: 99 KiB on devices of capability 8.6 and 8.9, more on the larger ones.
LEAST_SHARED = 99 * 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "classes", "scores", "capability"),
    [
        (1, 100, "*fp16", 90),
        (5, 1000, "*fp32", 90),
        pytest.param(5, 10_000, "*bf16", 90, marks=pytest.mark.slow),
        pytest.param(5, 1000, "*bf16", 80, marks=pytest.mark.slow),
        pytest.param(20, 1000, "*fp32", 90, marks=pytest.mark.slow),
        (5, 2**15, "*bf16", 80),
    ],
)
def test_smooth_kernels_compile(k, classes, scores, capability, fresh_cache):
    from topk_losses._smooth_svm import cuda_kernels

    types = {**SMOOTH, "scores": scores, "out": scores}
    sizes = {"K": k, "M": 1 << (3 * k - 1).bit_length(), "BLOCK": triton.block_of(classes)}
    per_row = scores == "*bf16"
    forward = compile_kernel(
        cuda_kernels.smooth_forward, types, capability, PER_ROW=per_row, SLOPE=True, **sizes
    )
    backward = compile_kernel(cuda_kernels.smooth_backward, types, capability, **sizes)
    assert max(forward.metadata.shared, backward.metadata.shared) <= LEAST_SHARED


@pytest.mark.parametrize(
    ("shape", "by_log", "classes", "capability"),
    [
        ("gaussian", True, 1000, 90),
        *(pytest.param(shape, False, 2**15, 80, marks=pytest.mark.slow) for shape in CODES),
    ],
)
def test_soft_topk_kernels_compile(shape, by_log, classes, capability, fresh_cache):
    from topk_losses._soft_topk import cuda_kernels

    types = {**SOFT, "scores": "*fp32", "out": "*fp32"}
    block = triton.block_of(classes)
    sizes = {"SHAPE": CODES[shape], "BLOCK": block, "warps": triton.warps_of(block, SCORES_PER_THREAD)}
    forward = compile_kernel(cuda_kernels.soft_forward, types, capability, LOG=by_log, **sizes)
    backward = compile_kernel(cuda_kernels.soft_backward, types, capability, **sizes)
    assert max(forward.metadata.shared, backward.metadata.shared) <= LEAST_SHARED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "classes", "scores", "capability"),
    [
        (1, 100, "*fp16", 90),
        pytest.param(5, 1000, "*fp32", 90, marks=pytest.mark.slow),
        pytest.param(5, 10_000, "*bf16", 90, marks=pytest.mark.slow),
        (31, 2**15, "*bf16", 80),
    ],
)
def test_noised_kernels_compile(k, classes, scores, capability, fresh_cache):
    from topk_losses._noised import cuda_kernels

    types = {**NOISED, "scores": scores, "out": scores}
    block = triton.block_of(classes)
    sizes = {"K": k, "CAPACITY": min(block, max(LEAST_CAPACITY, block // 16))}

    def compiled(name, **constants):
        return compile_kernel(getattr(cuda_kernels, name), types, capability, **constants)

    kernels = (
        compiled("noised_candidates", **sizes, GROUPS=min(GROUPS, block), BLOCK=block),
        compiled("noised_draws", **sizes, SLOTS=1 << k.bit_length(), BLOCK=CHUNK, warps=1),
        compiled("noised_losses", PER_ROW=scores == "*bf16", BLOCK=128, warps=1),
        compiled("noised_backward", DRAWS=128, BLOCK=min(block, 4096)),
    )
    assert max(kernel.metadata.shared for kernel in kernels) <= LEAST_SHARED


def test_kernels_are_not_compiled_again_after_their_trial_launch():
    """The integers in which a trial differs from the calls: 0 and 1 and multiples of 16 are kinds of their own."""
    pytest.importorskip("triton")
    from topk_losses._noised import cuda_kernels as noised
    from topk_losses._smooth_svm import cuda_kernels as smooth
    from topk_losses._soft_topk import cuda_kernels as soft

    kernels = [getattr(module, name) for module in (noised, smooth, soft) for name in module.__all__]
    varying = {"gradient_stride", "ignored", "share"}
    parameters = [one for kernel in kernels for one in kernel.params if one.name in varying]
    assert {one.name for one in parameters} == varying
    assert all(one.do_not_specialize for one in parameters)


@pytest.mark.slow
def test_tensors_on_the_cpu_load_no_triton():
    code = (
        "import sys, torch; before = set(sys.modules); from topk_losses import functional as f; "
        "s, y = torch.zeros(2, 9, requires_grad=True), torch.tensor([0, 1]); "
        "(f.smooth_topk_svm(s, y, 3) + f.noised_topk_hinge(s, y, 3)).backward(); "
        "added = set(sys.modules) - before; "
        "print(*sorted(n for n in added if n.split('.')[0] == 'triton' or n.endswith('cuda_kernels')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not run.stdout.split()


def test_the_cpu_is_not_the_kernels_affair():
    refusal = triton.refusal(torch.zeros(2, 9), torch.tensor([0, 1]), asked=True)
    assert refusal == "the scores are not on a CUDA device"
    assert functional.smooth_topk_svm(torch.zeros(2, 9), torch.tensor([0, 1]), 3) > 0
