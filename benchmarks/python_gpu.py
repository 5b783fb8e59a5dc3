"""What Python costs of a step on a GPU, and whether kernels in compiled graphs beat plain torch there.

    python benchmarks/python_gpu.py                 # needs a CUDA device; `make gpu` runs it
    python benchmarks/python_gpu.py --device cpu    # times calls on the CPU, and traces the operators as a rehearsal

*Called*: the time of the host for forward and backward pass of a batch so small that the device waits for Python, as a
multiple of torch's cross-entropy in the same run, and the functions of ours that take most of it. At most 2.5 is wanted
of the smooth SVM and the noised hinge. On the CPU the kernels' own arithmetic is part of it.

*Compiled*: a linear layer and the smooth SVM as one graph of ``torch.compile``, with the loss in plain torch, as
``topk_losses`` gives it today, and with its Triton kernels as operators of ``torch.library.triton_op``. Where the
second is faster, such operators belong into the losses. Both tables are Markdown.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import triton_op, wrap_triton

from topk_losses import functional
from topk_losses._core import triton
from topk_losses._smooth_svm.cuda import TritonSmoothSVM

Loss = Callable[[Tensor, Tensor], Tensor]
K, TAU, MARGIN, NONE_IGNORED = 5, 1.0, 1.0, -100
CALLED: dict[str, Loss] = {
    "cross-entropy": torch.nn.functional.cross_entropy,
    "smooth SVM": lambda s, y: functional.smooth_topk_svm(s, y, K),
    "noised hinge": lambda s, y: functional.noised_topk_hinge(s, y, K),
}
SHAPES = ((256, 1000), (1024, 10_000))
WANTED = 2.5  # times cross-entropy's Python


def kernels() -> object:
    """The module of the kernels, which imports Triton."""
    from topk_losses._smooth_svm import cuda_kernels  # noqa: PLC0415

    return cuda_kernels


@triton_op("topk_losses_benchmark::smooth_forward", mutates_args={})
def smooth_forward(scores: Tensor, labels: Tensor, k: int, tau: float) -> tuple[Tensor, Tensor]:
    """The losses, and what the gradient needs."""
    rows, classes = scores.shape
    most, block = _most(k), triton.block_of(classes)
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    kept = torch.empty(rows, 3 + k + 2 * most, dtype=torch.float32, device=scores.device)
    halves = [half for number in (1 / (k * tau), 1 / tau, MARGIN) for half in triton.halves(number)]
    wrap_triton(kernels().smooth_forward)[(rows, 1)](  # type: ignore[attr-defined]
        scores, labels, losses, losses, kept, scores.stride(0), classes, NONE_IGNORED, tau, *halves,
        PER_ROW=False, SLOPE=True, K=k, M=most, BLOCK=block, num_warps=triton.warps_of(block),
    )  # fmt: skip
    return losses, kept


@triton_op("topk_losses_benchmark::smooth_backward", mutates_args={})
def smooth_backward(
    gradient: Tensor, scores: Tensor, labels: Tensor, kept: Tensor, k: int, tau: float
) -> Tensor:
    """The gradient with respect to the scores."""
    rows, classes = scores.shape
    block = triton.block_of(classes)
    by_score = torch.empty_like(scores, memory_format=torch.contiguous_format)
    by_margin = torch.empty(rows, dtype=torch.float32, device=scores.device)
    wrap_triton(kernels().smooth_backward)[(rows, 1)](  # type: ignore[attr-defined]
        scores, labels, gradient, kept, by_score, by_margin, scores.stride(0), gradient.stride(0), classes,
        1 / (k * tau), K=k, M=_most(k), BLOCK=block, num_warps=triton.warps_of(block),
    )  # fmt: skip
    return by_score


def _most(k: int) -> int:
    return TritonSmoothSVM(k, TAU)._most


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[object, ...], output: object) -> None:
    scores, labels, ctx.k, ctx.tau = inputs  # type: ignore[attr-defined]
    ctx.save_for_backward(scores, labels, output[1])  # type: ignore[index, arg-type]


def _pull_back(
    ctx: torch.autograd.function.FunctionCtx, gradient: Tensor, _: Tensor | None
) -> tuple[Tensor | None, ...]:
    scores, labels, kept = ctx.saved_tensors  # type: ignore[attr-defined]
    return smooth_backward(gradient.contiguous(), scores, labels, kept, ctx.k, ctx.tau), None, None, None  # type: ignore[attr-defined]


smooth_forward.register_autograd(_pull_back, setup_context=_keep)


def registered(scores: Tensor, labels: Tensor) -> Tensor:
    """The smooth SVM by the registered operators."""
    losses: Tensor = smooth_forward(scores, labels, K, TAU)[0]
    return losses.mean()


def on_device(rows: int, classes: int, device: str = "cuda") -> tuple[Tensor, Tensor]:
    """Scores that take a gradient, and labels."""
    generator = torch.Generator(device).manual_seed(0)
    scores = 3 * torch.randn(rows, classes, generator=generator, device=device)
    return scores.requires_grad_(), torch.randint(classes, (rows,), generator=generator, device=device)


def called(steps: int, device: str) -> list[str]:
    """The host's time per step of each loss, and where ours goes."""
    scores, labels = on_device(8, 10, device)
    lines = ["| loss | microseconds of Python | times cross-entropy |", "|---|---|---|"]
    usual, above = 0.0, list[str]()
    for name, loss in CALLED.items():
        own = min(_host_time(loss, scores, labels, steps) for _ in range(20))
        usual = usual or own
        lines.append(f"| {name} | {1e6 * own:.0f} | {own / usual:.2f} |")
        if own > WANTED * usual:
            above.append(name)
    verdict = f"more than {WANTED} for {' and '.join(above)}" if above else "as wanted"
    return [*lines, "", f"Decides whether Python's part is small enough: {verdict}."]


def _host_time(loss: Loss, scores: Tensor, labels: Tensor, steps: int) -> float:
    if scores.is_cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        torch.autograd.grad(loss(scores, labels), scores)
    return (time.perf_counter() - began) / steps


def profiled(steps: int) -> None:
    """Print the functions that take most of Python's time of the two losses."""
    scores, labels = on_device(8, 10)
    for name in ("smooth SVM", "noised hinge"):
        print(f"\n{name}:")
        profile = cProfile.Profile()
        profile.runcall(_host_time, CALLED[name], scores, labels, steps)
        pstats.Stats(profile).sort_stats("tottime").print_stats(15)


def compiled(repetitions: int) -> list[str]:
    """The device's time of a compiled step: loss in plain torch, and by registered kernels; and that of eager mode."""
    lines = ["| samples × classes | eager, kernels | graph, plain | graph, kernels |", "|---|---|---|---|"]
    faster = 0
    for rows, classes in SHAPES:
        _, labels = on_device(rows, classes)
        layer = torch.nn.Linear(128, classes, device="cuda")
        inputs = torch.randn(rows, 128, device="cuda")

        def whole(loss: Loss) -> Callable[[], Tensor]:
            return lambda: loss(layer(inputs), labels)  # noqa: B023 - called within this turn

        plain = whole(CALLED["smooth SVM"])
        ways = (plain, torch.compile(plain, fullgraph=True), torch.compile(whole(registered), fullgraph=True))
        times = [_device_time(way, repetitions) for way in ways]
        lines.append(f"| {rows} × {classes} | {' | '.join(f'{time:.0f}' for time in times)} |")
        faster += times[2] < times[1]
    verdict = f"faster for {faster} of {len(SHAPES)} sizes"
    return [
        *lines,
        "",
        f"Microseconds. Decides whether the losses register their kernels for graphs: {verdict}.",
    ]


def _device_time(loss: Callable[[], Tensor], repetitions: int) -> float:
    """The median time of forward and backward pass, in microseconds."""
    for _ in range(5):
        loss().backward()  # type: ignore[no-untyped-call]
    times: list[float] = []
    for _ in range(repetitions):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        loss().backward()  # type: ignore[no-untyped-call]
        stop.record()
        torch.cuda.synchronize()
        times.append(1000 * start.elapsed_time(stop))
    return statistics.median(times)


def traced() -> str:
    """The graph of the registered operators, forward and backward, without running a kernel."""

    def step(scores: Tensor, labels: Tensor) -> Tensor:
        return torch.autograd.grad(registered(scores, labels), scores)[0]

    with FakeTensorMode():
        scores = torch.empty(8, 100, requires_grad=True)
        labels = torch.zeros(8, dtype=torch.int64)
        return str(make_fx(step)(scores, labels).code)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, or rehearse."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--steps", type=int, default=200, help="steps in a row whose Python is timed")
    parser.add_argument("--repetitions", type=int, default=50, help="compiled steps that are timed")
    options = parser.parse_args(arguments)
    print("\n".join(called(options.steps, options.device)))
    if options.device == "cpu":
        print(traced())
        return
    profiled(options.steps)
    print("\n".join(compiled(options.repetitions)))


if __name__ == "__main__":
    main()
