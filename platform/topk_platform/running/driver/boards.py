"""A study's progress, read from its ledger."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace

from topk_platform.identity import CHOOSER, Identity
from topk_platform.protocol import ArmBoard, Board
from topk_platform.records import ArmHistory
from topk_platform.specs import Study

__all__ = ["as_checked", "finished", "in_environment", "make_board"]


def in_environment(
    study: Study, identities: Mapping[str, Identity], environment: Mapping[str, str]
) -> dict[str, Identity]:
    """Return the arms' identities with an environment; for arms that search, it includes Optuna's version.

    Args:
        study: The study.
        identities: The identities whose environment is replaced, by arm identity.
        environment: See :func:`~topk_platform.training.environment`.
    """
    searching = {study.arm_id(arm) for arm in study.arms if arm.is_searched}
    chosen_by = {CHOOSER: importlib.metadata.version(CHOOSER)}
    return {
        arm_id: replace(identity, environment={**environment, **(chosen_by if arm_id in searching else {})})
        for arm_id, identity in identities.items()
    }


def as_checked(checked: Mapping[str, Identity], counted: Mapping[str, Identity]) -> dict[str, Identity]:
    """Return identities with the code and data of a check, and the environment of those that count."""
    return {arm_id: replace(now, environment=counted[arm_id].environment) for arm_id, now in checked.items()}


def make_board(
    study: Study, identities: Mapping[str, Identity], histories: Mapping[str, ArmHistory]
) -> Board:
    """Return the study's state from the ledger.

    Args:
        study: The study.
        identities: Which rows count, by arm identity.
        histories: Each arm's history of such rows, by arm identity.
    """
    return Board(
        ArmBoard(
            study=study,
            arm=history.arm,
            identity=identities[arm_id],
            searched=history.ended(),
            confirmed=history.ended_confirmations(),
            outdated=history.outdated,
        )
        for arm_id, history in histories.items()
    )


def finished(board: Board, identities: Mapping[str, Identity]) -> dict[str, str]:
    """Return the arms with nothing left to run, each with the fingerprint of the data it was trained on.

    Args:
        board: The study's state.
        identities: Which rows count, by arm identity; arms whose data are not known are left out.
    """
    done = [arm_id for arm_id, arm in board.arms.items() if not arm.left]
    trained_on = {arm_id: identities[arm_id].dataset_fingerprint for arm_id in done}
    return {arm_id: fingerprint for arm_id, fingerprint in trained_on.items() if fingerprint}
