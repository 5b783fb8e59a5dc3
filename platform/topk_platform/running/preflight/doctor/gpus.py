"""The GPUs of a machine: what NVIDIA's driver reports, and whether torch can use them."""

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

__all__ = ["Gpu", "drivers_version", "gpus_here", "mps_runs"]

_SECONDS = 60
_ASKED = "index,driver_version"  # both are known for every GPU; its memory is not, if it shares that of the processor
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
        driver: The driver's version, if known.
        environment: The environment of trainings on it; empty if torch cannot use it.
    """

    name: str
    memory: int
    free: int
    driver: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def gpus_here(promised: float) -> list[Gpu]:
    """Return this machine's GPUs that torch can use, each slice of MIG as one.

    Args:
        promised: How many GPUs Ray counts here; torch is asked if there are any, or if the driver lists some.

    Raises:
        OSError: if there should be GPUs and torch can use none; the message says why.
    """
    version = drivers_version(_ask_driver())
    if not (version or promised):
        return []
    return [Gpu(**one, driver=version) for one in _ask_torch()]


def drivers_version(text: str) -> str:
    r"""Return the driver's version from the output of ``nvidia-smi --query-gpu``; empty if no GPU is listed.

    Example:
        >>> drivers_version("0, 570.86.10\n1, 570.86.10\n"), drivers_version("No devices were found\n")
        ('570.86.10', '')
    """
    return text.partition("\n")[0].partition(", ")[2]


def _ask_driver() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    command = [program, f"--query-gpu={_ASKED}", "--format=csv,noheader"]
    done = _run(command, dict(os.environ))
    if done.returncode:
        raise OSError(f"nvidia-smi says: {_last(done.stdout + done.stderr)}")
    return done.stdout


def mps_runs() -> bool:
    """Return whether NVIDIA's MPS runs on this machine; with it, several processes compute on a GPU at once.

    Raises:
        OSError: if its control program does not answer.
    """
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        return False
    return _run([program], dict(os.environ), "get_server_list\n").returncode == 0


def _ask_torch() -> list[dict[str, Any]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if not environment.get("CUDA_VISIBLE_DEVICES"):  # Ray empties it for processes that asked for no GPU
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    if slices := slices_here(environment.get("CUDA_VISIBLE_DEVICES")):  # a process can use one slice only
        return [gpu for one in slices for gpu in _ask_process({**environment, "CUDA_VISIBLE_DEVICES": one})]
    return _ask_process(environment)


def _ask_process(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    done = _run([sys.executable, "-c", _LOOK], environment)
    if done.returncode:
        raise OSError(f"torch can use none: {_last(done.stderr)}")
    gpus: list[dict[str, Any]] = json.loads(done.stdout)
    return gpus


def _run(
    command: Sequence[str], environment: Mapping[str, str], said: str = ""
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the driver's program by its path, or our own interpreter
            command,
            env=environment,
            input=said,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command[0]} does not answer within {_SECONDS} s") from error


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1]
