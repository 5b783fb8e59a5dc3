"""The process that trains: its state at the start of every trial, and what of the machine decides the last bits."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import topk_losses
from topk_platform.data import load
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Numerics, Trial
from topk_platform.specs.codec import stream_seed

__all__ = ["environment", "process_state", "restore_process", "restored_process", "trial_process"]

_RAISING = (
    2  # torch's number for deterministic algorithms, with an error if there is none; with 1 it only warns
)

_Switch = tuple[Callable[[], Any], Callable[[Any], Any], Any]


def _flushes_denormals() -> bool:
    small = torch.tensor(2.0**-100, dtype=torch.float32, device="cpu")  # torch has no function that tells
    return (small * 2.0**-40).item() == 0


_SWITCHES: tuple[_Switch, ...] = (  # a function that reads, one that writes, and the value at a trial's start
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (torch.is_grad_enabled, torch.set_grad_enabled, True),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
    # Networks that have learnt have gradients below the smallest normal number; these take many times as long.
    (_flushes_denormals, torch.set_flush_denormal, True),
)


def _chosen(numerics: Numerics) -> tuple[_Switch, ...]:
    """Return the switches that the recipe chooses."""
    return (
        (
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
            "high" if numerics.tf32 else "highest",
        ),
        (torch.get_deterministic_debug_mode, _repeat_algorithms, _RAISING if numerics.deterministic else 0),
        (_convolutions_in_tf32, _let_convolutions_use_tf32, numerics.tf32),
    )


def _repeat_algorithms(mode: int) -> None:
    torch.use_deterministic_algorithms(mode > 0, warn_only=0 < mode < _RAISING)


def _convolutions_in_tf32() -> bool:
    return torch.backends.cudnn.allow_tf32


def _let_convolutions_use_tf32(allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = allowed


def process_state(device: str) -> dict[str, Any]:
    """Return the state of the global generators, as tensors and plain data."""
    name, keys, *rest = cast("tuple[Any, ...]", np.random.get_state())  # noqa: NPY002 - the user's code may draw from it
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (name, torch.from_numpy(keys.astype(np.int64)), *rest),
    }
    return state | ({"cuda": torch.cuda.get_rng_state()} if device == "cuda" else {})


def restore_process(state: dict[str, Any]) -> None:
    """Restore a state that :func:`process_state` returned."""
    torch.set_rng_state(state["torch"])
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002 - as above
    if "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"])


@contextmanager
def restored_process() -> Iterator[None]:
    """Restore the state of the process at the block's end, after any change by a trial or a user's code.

    The state is: torch's defaults for dtype, gradients, precision, determinism and anomaly detection, the thread count,
    and the global generators of torch, NumPy and Python.
    """
    before = [(read, write, read()) for read, write, _ in _SWITCHES + _chosen(Numerics())]
    threads, generators = torch.get_num_threads(), process_state("cpu")
    try:
        yield
    finally:
        _switch(before)
        torch.set_num_threads(threads)
        restore_process(generators)


@contextmanager
def trial_process(trial: Trial) -> Iterator[None]:
    """Give the process the state from which every trial starts, and restore its state at the end.

    Effect: the trial's thread count; torch's defaults for dtype, device, gradients, precision, determinism,
    denormals and anomaly detection; the global generators of torch, NumPy and Python, seeded from the trial's own
    stream, for dropout and for users' code. Variables of users' modules are not restored.

    Args:
        trial: The trial that starts. Its data are read and its modules are imported before the state is set. A process
            does that only once, and random draws in it must not make the first trial differ from the next one.
    """
    switches = _SWITCHES + _chosen(trial.arm.recipe.numerics)
    with restored_process():
        _reset(trial, switches)
        load(trial.arm.regime)
        for name in (trial.arm.model.name, trial.arm.loss.name):
            if is_reference(name):
                import_reference(name)
        _reset(trial, switches)
        yield


def _switch(switches: Iterable[_Switch]) -> None:
    for read, write, value in switches:
        # Setting deterministic algorithms imports torch's compiler, which takes two seconds.
        if read() != value:
            write(value)


def _reset(trial: Trial, switches: tuple[_Switch, ...]) -> None:
    _switch(switches)
    torch.set_num_threads(trial.threads)
    torch.set_default_device(None)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = trial.arm.recipe.numerics.deterministic
    seed = stream_seed(trial.root, trial.seed, "process")
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - as above


@cache
def environment(device: str) -> dict[str, str]:
    """Return the versions and hardware that decide the bits of a result besides its trial, its code and its data.

    - ``torch``: the version of torch, on which arithmetic and random streams depend. The version of torchvision goes
      with it.
    - ``machine``: on the CPU, the processor's model and the instructions that torch uses, because they decide which
      kernels its libraries choose; on CUDA, the GPU's model.
    - ``losses``: the backend that computes the losses, see :func:`topk_losses.backend`.

    Python's version is left out, because it does not affect the arithmetic, and so is the number of threads, which is
    part of the trial.

    Args:
        device: ``"cpu"`` or ``"cuda"``, which this machine must have.

    Example:
        >>> sorted(environment("cpu"))
        ['losses', 'machine', 'torch']
    """
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    return {"torch": torch.__version__, "machine": machine, "losses": topk_losses.backend(device)}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    model = processor_model(cpuinfo.read_text()) if cpuinfo.exists() else platform.processor()
    return f"{platform.machine()} {model} {torch.backends.cpu.get_cpu_capability()}"


def processor_model(cpuinfo: str) -> str:
    r"""Return the model of the first processor in Linux's ``/proc/cpuinfo``.

    Virtual machines give many models the same name, so the processor's numbers are added.

    Example:
        >>> processor_model("model name : Xeon\ncpu family : 6\nmodel : 143\n\nmodel name : other")
        'Xeon, cpu family 6, model 143'
    """
    first = cpuinfo.partition("\n\n")[0]
    facts = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())
    }
    numbers = ("cpu family", "model", "CPU implementer", "CPU part")  # the former of x86, the latter of ARM
    texts = [facts.get("model name", ""), *(f"{name} {facts[name]}" for name in numbers if name in facts)]
    return ", ".join(filter(None, texts))
