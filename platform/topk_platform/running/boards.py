"""How far a study is, by what its ledger holds."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from dataclasses import replace

from topk_platform.identity import Identity
from topk_platform.records import ArmHistory
from topk_platform.search import ArmBoard, Board
from topk_platform.specs import Study

__all__ = ["finished", "in_environment", "make_board"]


def in_environment(
    study: Study, identities: Mapping[str, Identity], environment: Mapping[str, str]
) -> dict[str, Identity]:
    """Return the arms' identities in an environment; of those that search, Optuna's version is part of it.

    Args:
        study: The study.
        identities: By arm identity.
        environment: See :func:`~topk_platform.training.environment`.
    """
    optuna = {"optuna": importlib.metadata.version("optuna")}
    searching = {study.arm_id(arm) for arm in study.arms if arm.searches}
    return {
        arm_id: replace(identity, environment={**environment, **(optuna if arm_id in searching else {})})
        for arm_id, identity in identities.items()
    }


def make_board(
    study: Study, identities: Mapping[str, Identity], histories: Mapping[str, ArmHistory]
) -> Board:
    """Return the study's state as the ledger tells it.

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
            confirmed={("confirm", number, seed) for number, seed in history.confirm},
            outdated=history.outdated,
        )
        for arm_id, history in histories.items()
    )


def finished(
    study: Study, identities: Mapping[str, Identity], histories: Mapping[str, ArmHistory]
) -> dict[str, str]:
    """Return the arms of which nothing is left to run, each with the fingerprint of the data it was trained on.

    Args:
        study: The study.
        identities: Which rows count, by arm identity; an arm whose data are not known is not among those returned.
        histories: Each arm's history of such rows, by arm identity.
    """
    arms = make_board(study, identities, histories).arms
    trained_on = {
        arm_id: identities[arm_id].dataset_fingerprint for arm_id, arm in arms.items() if not arm.left
    }
    return {arm_id: fingerprint for arm_id, fingerprint in trained_on.items() if fingerprint}
