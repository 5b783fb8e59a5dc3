"""What a trial's code may have changed in its process, put back before the next trial."""

from __future__ import annotations

import random

import numpy as np
import torch

from topk_platform.data import load
from topk_platform.references import import_reference, is_reference
from topk_platform.specs import Trial
from topk_platform.streams import stream_seed

__all__ = ["reset_process"]


def reset_process(trial: Trial) -> None:
    """Give the process the state that every trial starts from, whatever ran in it before.

    Effect: the trial's thread count; torch's defaults for dtype, device, gradients, precision, determinism and
    anomaly detection; torch's, NumPy's and Python's global generators seeded from a stream of the trial's own,
    for dropout and for whatever else of the user's draws from them. What a user's module keeps in its own
    variables is the user's.

    Args:
        trial: The trial that is to start; its data are read and its modules imported, for a process does so once,
            and what that draws or changes must not tell the first trial from the next.
    """
    _reset(trial)
    load(trial.arm.regime)
    for name in (trial.arm.model.name, trial.arm.loss.name):
        if is_reference(name):
            import_reference(name)
    _reset(trial)


def _reset(trial: Trial) -> None:
    torch.set_num_threads(trial.threads)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.set_float32_matmul_precision("highest")
    torch.set_flush_denormal(False)
    torch.use_deterministic_algorithms(False)
    torch.autograd.set_detect_anomaly(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = False
    seed = stream_seed(trial.study, trial.root, trial.seed, "process")
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the global generator that a user's code may draw from
