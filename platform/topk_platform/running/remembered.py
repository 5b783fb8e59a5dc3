"""What a study that is done needs to know of this machine and of its data, found without torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from topk_platform.identity import Identity
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.references import is_reference
from topk_platform.running.boards import finished, in_environment
from topk_platform.specs import Regime, Study, digest

__all__ = ["known_done", "light_fingerprint", "note_environment", "noted_environment"]

_FILE = "environment.json"
# What decides by its version what computes the losses, and whether it can be imported.
_PACKAGES = ("torch", "numpy", "numba", "llvmlite")
_DIGITS = Path(__file__).parents[1] / "data" / "digits.npz"


def known_done(study: Study, ledger: Ledger) -> dict[str, Identity] | None:
    """Return which rows count if nothing is left to run on this machine and that can be told without torch, else None.

    Args:
        study: The study; of one that names a user's own code, or trains on a GPU, it cannot be told.
        ledger: Where the last run noted its environment.
    """
    names = (name for arm in study.arms for name in (arm.regime.dataset, arm.model.name, arm.loss.name))
    environment = noted_environment(ledger.store)
    if environment is None or study.device != "cpu" or any(map(is_reference, names)):
        return None
    counted = in_environment(study, last_counted(ledger, study), environment)
    done = finished(study, counted, read_history(ledger, study, counted))
    fingerprints = {study.arm_id(arm): light_fingerprint(arm.regime) for arm in study.arms}
    return counted if done == fingerprints else None


def note_environment(store: Store, environment: Mapping[str, str]) -> None:
    """Note the CPU's environment of this machine, see :func:`~topk_platform.training.environment`."""
    noted = json.dumps({"seen": _seen(), "environment": dict(environment)}, indent=1).encode()
    if not store.exists(_FILE) or store.read(_FILE) != noted:
        store.write(_FILE, noted)


def noted_environment(store: Store) -> dict[str, str] | None:
    """Return what was noted, if all that it follows from looks as it did then; else, or if nothing was, None."""
    if not store.exists(_FILE):
        return None
    with suppress(ValueError, KeyError, TypeError):  # what is damaged is found anew
        noted = json.loads(store.read(_FILE))
        if noted["seen"] == _seen():
            return {str(name): str(value) for name, value in noted["environment"].items()}
    return None


def _seen() -> str:
    """Return a digest of the packages' versions, and of what torch chooses the processor's instructions by."""
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    chosen = os.environ.get("ATEN_CPU_CAPABILITY", "")
    return digest((*versions, platform.machine(), platform.processor(), _processor(), chosen))


def _version(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _processor() -> str:
    """Return what Linux tells of the first processor, without what changes while it runs."""
    cpuinfo = Path("/proc/cpuinfo")
    first = cpuinfo.read_text().partition("\n\n")[0] if cpuinfo.exists() else ""
    return "\n".join(line for line in first.splitlines() if not line.startswith(("cpu MHz", "bogomips")))


def light_fingerprint(regime: Regime) -> str | None:
    """Return what :attr:`~topk_platform.data.Dataset.fingerprint` is of the digits, None of other data.

    It is found from their bytes, as there: that takes no torch, which would be most of what a study that is done
    takes to say so. Other data are read as workers read them.
    """
    if regime.dataset != "digits" or regime.options:
        return None
    with np.load(_DIGITS) as file:
        images, labels, splits = (file[name] for name in ("images", "labels", "split"))
    inputs, targets = (images.astype(np.float32) / 16)[:, None], labels.astype(np.int64)
    state = hashlib.sha256(repr((10, (0,) * 5 + (1,) * 5)).encode())
    for split in range(3):
        for part in (inputs[splits == split], targets[splits == split]):
            state.update(f"torch.{part.dtype} {part.shape}".encode())
            state.update(part.tobytes())
    return state.hexdigest()[:20]
