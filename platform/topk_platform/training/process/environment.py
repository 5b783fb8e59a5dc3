"""What of a machine and of its installed packages decides the last bits of a training."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

import topk_losses

__all__ = ["environment"]


@cache
def environment(device: str) -> dict[str, str]:
    """Return what decides a training's bits beside its trial, its code and its data.

    - ``torch``: its version, and so that of torchvision, which comes as a pair with it. Arithmetic and random streams
      change with it.
    - ``machine``: on the CPU the processor's model and the instructions that torch uses of it, for its libraries
      choose their kernels by them; on CUDA the GPU's model.
    - ``losses``: what computes the losses, see :func:`topk_losses.backend`.

    Left out is what has no part in the arithmetic, such as Python's version, or what a trial itself says, such as its
    number of threads.

    Args:
        device: ``"cpu"`` or ``"cuda"``, which must be there.

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
    r"""Return the model of the first processor that Linux's ``/proc/cpuinfo`` tells of.

    Virtual machines tell of many models by one name, hence the numbers beside it.

    Example:
        >>> processor_model("model name : Xeon\ncpu family : 6\nmodel : 143\n\nmodel name : other")
        'Xeon, cpu family 6, model 143'
    """
    first = cpuinfo.partition("\n\n")[0]
    facts = {
        name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())
    }
    numbers = ("cpu family", "model", "CPU implementer", "CPU part")  # the former of x86, the latter of ARM
    told = [facts.get("model name", ""), *(f"{name} {facts[name]}" for name in numbers if name in facts)]
    return ", ".join(filter(None, told))
