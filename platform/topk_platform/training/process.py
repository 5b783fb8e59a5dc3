"""The process that a trial runs in: one and the same state at the start of every trial, the caller's at its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from topk_platform.data import load
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Trial
from topk_platform.streams import stream_seed

__all__ = ["lent_process"]

_Switch = tuple[Callable[[], Any], Callable[[Any], Any], Any]

_SWITCHES: tuple[_Switch, ...] = (  # read, write, what a trial starts from
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    (torch.is_grad_enabled, torch.set_grad_enabled, True),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, False),
    (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, False),
)


@contextmanager
def lent_process(trial: Trial) -> Iterator[None]:
    """Give the process the state that every trial starts from, whatever ran in it before; put it back at the end.

    Effect: the trial's thread count; torch's defaults for dtype, device, gradients, precision, determinism,
    denormals and anomaly detection; torch's, NumPy's and Python's global generators seeded from a stream of the
    trial's own, for dropout and for whatever else of the user's draws from them. What a user's module keeps in
    its own variables is the user's.

    Args:
        trial: The trial that is to start; its data are read and its modules imported, for a process does so once,
            and what that draws or changes must not tell the first trial from the next.
    """
    before = [(write, read()) for read, write, _ in _SWITCHES]
    generators = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002 - the user's code may draw from it
    try:
        _reset(trial)
        load(trial.arm.regime)
        for name in (trial.arm.model.name, trial.arm.loss.name):
            if is_reference(name):
                import_reference(name)
        _reset(trial)
        yield
    finally:
        for write, value in before:
            write(value)
        torch.set_rng_state(generators[0])
        random.setstate(generators[1])
        np.random.set_state(generators[2])  # noqa: NPY002 - as above


def _reset(trial: Trial) -> None:
    for _, write, value in _SWITCHES:
        write(value)
    torch.set_num_threads(trial.threads)
    torch.set_default_device(None)
    torch.set_flush_denormal(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    seed = stream_seed(trial.study, trial.root, trial.seed, "process")
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - as above
