"""The properties of a machine and its packages that decide the last bits of a training."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import torch

import topk_losses

__all__ = ["environment"]


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
