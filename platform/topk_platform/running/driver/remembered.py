"""What a finished study needs to know of this machine and its data, found without importing torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from topk_platform.identity import Identity
from topk_platform.records import Ledger, Store, last_counted, read_history
from topk_platform.references import is_reference
from topk_platform.running.driver.boards import finished, in_environment
from topk_platform.running.driver.incomplete import incomplete, without
from topk_platform.specs import Regime, Study, digest

__all__ = ["Noted", "known_done", "note", "noted"]

_FILE = "environment.json"
# What decides by its version what computes the losses, and whether it can be imported.
_PACKAGES = ("torch", "numpy", "numba", "llvmlite")
_DATA = Path(__file__).parents[2] / "data"
_PACKAGED = ("digits", "letters")  # datasets that the package holds, as NAME.npz


@dataclass(frozen=True)
class Noted:
    """Notes on a machine, and on the datasets that the package contains.

    Args:
        environment: The CPU's, see :func:`~topk_platform.training.environment`.
        data: The fingerprints of these datasets by name, as far as they were read.
    """

    environment: dict[str, str]
    data: dict[str, str]


def known_done(study: Study, ledger: Ledger) -> dict[str, Identity] | None:
    """Return which rows count if nothing is left to run on this machine and that can be told without torch, else None.

    Args:
        study: The study; None is returned for one that names a user's own code or trains on a GPU.
        ledger: The ledger in which the last run noted its environment.
    """
    names = (name for arm in study.arms for name in (arm.regime.dataset, arm.model.name, arm.loss.name))
    known = noted(ledger.store)
    if known is None or study.device != "cpu" or any(map(is_reference, names)):
        return None
    counted = in_environment(study, last_counted(ledger, study), known.environment)
    histories = read_history(ledger, study, counted)
    whole = without(histories, incomplete(ledger.store, study, histories))
    done = finished(study, counted, whole)
    fingerprints = {study.arm_id(arm): known.data.get(_packaged(arm.regime)) for arm in study.arms}
    return counted if done == fingerprints else None


def _packaged(regime: Regime) -> str:
    """Return the name of a regime's dataset if the package contains it, else nothing."""
    return regime.dataset if regime.dataset in _PACKAGED and not regime.options else ""


def note(store: Store, environment: Mapping[str, str], study: Study, counted: Mapping[str, Identity]) -> None:
    """Note the CPU's environment of this machine, and the fingerprints of the package's data that a study was run on.

    Args:
        store: The store to write to.
        environment: See :func:`~topk_platform.training.environment`.
        study: The study.
        counted: Its arms' identities, with the fingerprints that were found.
    """
    data = {
        name: counted[study.arm_id(arm)].dataset_fingerprint
        for arm in study.arms
        if (name := _packaged(arm.regime))
    }
    text = json.dumps({"seen": _seen(), "environment": dict(environment), "data": data}, indent=1).encode()
    if not store.exists(_FILE) or store.read(_FILE) != text:
        store.write(_FILE, text)


def noted(store: Store) -> Noted | None:
    """Return the notes if all that they depend on is unchanged; otherwise, or if there are none, None."""
    if not store.exists(_FILE):
        return None
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # what is damaged is found anew
        found = json.loads(store.read(_FILE))
        if found["seen"] == _seen():
            return Noted(_texts(found["environment"]), _texts(found["data"]))
    return None


def _texts(items: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in items.items()}


def _seen() -> str:
    """Return a digest of package versions, of the processor's features that torch looks at, and of our data."""
    versions = [f"{name} {_version(name)}" for name in _PACKAGES]
    files = [hashlib.sha256((_DATA / f"{name}.npz").read_bytes()).hexdigest() for name in _PACKAGED]
    chosen = os.environ.get("ATEN_CPU_CAPABILITY", "")
    return digest((*versions, platform.machine(), platform.processor(), _processor(), chosen, *files))


def _version(package: str) -> str:
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return ""


def _processor() -> str:
    """Return what Linux tells of the first processor, without what changes while it runs."""
    cpuinfo = Path("/proc/cpuinfo")
    first = cpuinfo.read_text().partition("\n\n")[0] if cpuinfo.exists() else ""
    return "\n".join(line for line in first.splitlines() if not line.startswith(("cpu MHz", "bogomips")))
