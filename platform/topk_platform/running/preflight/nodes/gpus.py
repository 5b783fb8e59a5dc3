"""The GPUs of a machine, and whether torch can use them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topk_platform.running.machine.devices import slices_here

__all__ = ["Gpu", "gpus_here"]

_SECONDS = 60
# This runs in a process of its own: a broken driver may hang, and Ray hides GPUs from processes that asked for none.
_LOOK = """
import json, torch
from topk_platform.training import environment
devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
torch.zeros(1, device="cuda")
free = [torch.cuda.mem_get_info(i)[0] for i in range(len(devices))]
kind = environment("cuda")
print(json.dumps([
    {"name": d.name, "memory": d.total_memory, "free": f, "environment": {**kind, "machine": d.name}}
    for d, f in zip(devices, free)
]))
"""


@dataclass(frozen=True)
class Gpu:
    """A GPU.

    Args:
        name: The GPU's model.
        memory: Bytes of memory.
        free: Bytes of free memory.
        environment: The environment of trainings on it; empty if torch cannot use it.
    """

    name: str
    memory: int
    free: int
    environment: Mapping[str, str] = field(default_factory=dict)


def gpus_here(promised: float) -> list[Gpu]:
    """Return this machine's GPUs that torch can use, each slice of MIG as one.

    Args:
        promised: How many GPUs Ray counts here; torch is asked if there are any, or if the driver lists some.

    Raises:
        OSError: if there should be GPUs and torch can use none; the message says why.
    """
    if not (_driver_lists_some() or promised):
        return []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if not environment.get("CUDA_VISIBLE_DEVICES"):  # Ray empties it for processes that asked for no GPU
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    if slices := slices_here(environment.get("CUDA_VISIBLE_DEVICES")):  # a process can use one slice only
        return [gpu for one in slices for gpu in _ask_torch({**environment, "CUDA_VISIBLE_DEVICES": one})]
    return _ask_torch(environment)


def _driver_lists_some() -> bool:
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    done = _run([program, "--query-gpu=index,driver_version", "--format=csv,noheader"], os.environ)
    if done.returncode:
        raise OSError(f"nvidia-smi says: {_last(done.stdout + done.stderr)}")
    return ", " in done.stdout  # otherwise it says that there are no devices


def _ask_torch(environment: Mapping[str, str]) -> list[Gpu]:
    done = _run([sys.executable, "-c", _LOOK], environment)
    if done.returncode:
        raise OSError(f"torch can use none: {_last(done.stderr)}")
    gpus: list[dict[str, Any]] = json.loads(done.stdout)
    return [Gpu(**gpu) for gpu in gpus]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the driver's program by its path, or our own interpreter
            command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command[0]} does not answer within {_SECONDS} s") from error


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1]
