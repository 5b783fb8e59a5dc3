"""Contracts for your own regimes and samplers, and studies that run without training.

Only running the contracts needs pytest. Each name is imported on first use: one contract needs torch, the other Optuna.
"""

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.testing.contracts import RegimeContract, SamplerContract
    from topk_platform.testing.fake_runs import FAKE_DATA, fake_record, fake_run

__all__ = ["FAKE_DATA", "RegimeContract", "SamplerContract", "fake_record", "fake_run"]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package's
    __getattr__ = first_use(__name__)
