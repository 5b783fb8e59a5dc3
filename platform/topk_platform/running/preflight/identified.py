"""The identities of this machine: its code, its data and its packages decide which rows count."""

from __future__ import annotations

from pathlib import Path

from topk_platform.identity import Identity
from topk_platform.records import Ledger, last_counted
from topk_platform.running.driver.boards import in_environment
from topk_platform.specs import Study

__all__ = ["identities_here"]


def identities_here(ledger: Ledger, study: Study, data: str | Path | None = None) -> dict[str, Identity]:
    """Return which rows count with the code, the data, the machine and the packages at hand, by arm identity.

    Args:
        ledger: The study's, which says what was adopted.
        study: The study.
        data: The folder of datasets; by default ``TOPK_DATA``, or else ``data``.

    Raises:
        UserError: if the data are missing, or the study needs a GPU that is not here.
    """
    # These load torch, which errors before need not wait for.
    from topk_platform import training  # noqa: PLC0415
    from topk_platform.data import data_at  # noqa: PLC0415
    from topk_platform.running.preflight.checks import check_device  # noqa: PLC0415
    from topk_platform.running.preflight.reading import load_regime  # noqa: PLC0415

    check_device(study)
    with data_at(data):
        prints = {study.arm_id(arm): load_regime(arm.regime).fingerprint for arm in study.arms}
    return in_environment(study, last_counted(ledger, study, prints), training.environment(study.device))
