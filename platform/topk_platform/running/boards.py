"""How far a study is, by what its ledger holds."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.records import ArmHistory
from topk_platform.search import ArmBoard, Board
from topk_platform.specs import Study

__all__ = ["finished", "make_board"]


def make_board(
    study: Study,
    codes: Mapping[str, str],
    fingerprints: Mapping[str, str],
    histories: Mapping[str, ArmHistory],
) -> Board:
    """Return the study's state as the ledger tells it.

    Args:
        study: The study.
        codes: Each arm's code version, by arm identity.
        fingerprints: Of each arm's dataset, by arm identity.
        histories: Each arm's history, by arm identity.
    """
    return Board(
        ArmBoard(
            study=study,
            arm=history.arm,
            dataset_fingerprint=fingerprints[arm_id],
            code_version=codes[arm_id],
            searched=history.ended(),
            confirmed={("confirm", number, seed) for number, seed in history.confirm},
        )
        for arm_id, history in histories.items()
    )


def finished(study: Study, codes: Mapping[str, str], histories: Mapping[str, ArmHistory]) -> dict[str, str]:
    """Return the arms of which nothing is left to run, each with the fingerprint of the data it was trained on.

    An arm that the ledger holds on several data is not among them: which of these count only the data can tell.

    Args:
        study: The study.
        codes: Each arm's code version, by arm identity.
        histories: Each arm's history on whatever data, by arm identity.
    """
    found = {
        arm_id: data.pop()
        for arm_id, history in histories.items()
        if len(data := {row["dataset_fingerprint"] for row in history.rows()}) == 1
    }
    board = make_board(study, codes, found, {arm_id: histories[arm_id] for arm_id in found})
    return {arm_id: found[arm_id] for arm_id, arm in board.arms.items() if not arm.left}
