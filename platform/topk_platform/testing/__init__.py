"""Contracts: tests that you can run on your own regimes, samplers and trackers. Only running them needs pytest."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topk_platform.testing.regimes import RegimeContract
    from topk_platform.testing.samplers import SamplerContract
    from topk_platform.testing.trackers import TrackerContract

__all__ = ["RegimeContract", "SamplerContract", "TrackerContract"]

_MODULES = {"RegimeContract": "regimes", "SamplerContract": "samplers", "TrackerContract": "trackers"}


def __getattr__(name: str) -> Any:
    # Imported when needed, because one contract needs torch and the other Optuna.
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
