"""A study's state, read from its ledger: what counts, what has ended, and which confirmations lack their files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from topk_platform.identity import CHOOSER, Identity
from topk_platform.protocol import StudyProgress
from topk_platform.records.files import NEEDED, Kind, Unsound, damaged_artifacts, missing_artifacts
from topk_platform.records.history import ArmHistory, StudyRows, last_counted, results_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import Row
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few

__all__ = [
    "Again",
    "as_checked",
    "complete_histories",
    "expected",
    "finished",
    "in_environment",
    "trained_again",
    "used",
    "what_trains_again",
]

_NAMED = 3  # files in a line


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


def expected(study: Study, ledger: Ledger, options: RunOptions) -> dict[str, Identity]:
    """Return which rows count. Before a cluster's machines can be asked, those of the last run are assumed.

    Args:
        study: The study.
        ledger: Its ledger.
        options: The options of the run.
    """
    counted = last_counted(ledger, study)
    if options.mixed:
        return {arm_id: replace(identity, environment={}) for arm_id, identity in counted.items()}
    if options.address is None:
        from topk_platform.training import environment  # noqa: PLC0415 - torch

        return in_environment(study, counted, environment(study.device))
    return counted


def as_checked(checked: Mapping[str, Identity], counted: Mapping[str, Identity]) -> dict[str, Identity]:
    """Return identities with the code and data of a check, and the environment of those that count."""
    return {arm_id: replace(now, environment=counted[arm_id].environment) for arm_id, now in checked.items()}


def finished(progress: StudyProgress, identities: Mapping[str, Identity]) -> dict[str, str]:
    """Return the arms with nothing left to run, each with the fingerprint of the data it was trained on.

    Args:
        progress: The study's state.
        identities: Which rows count, by arm identity; arms whose data are not known are left out.
    """
    done = [arm_id for arm_id, arm in progress.arms.items() if not arm.left]
    trained_on = {arm_id: identities[arm_id].dataset_fingerprint for arm_id in done}
    return {arm_id: fingerprint for arm_id, fingerprint in trained_on.items() if fingerprint}


def complete_histories(
    rows: StudyRows, study: Study, counted: Mapping[str, Identity], kinds: Sequence[Kind] = NEEDED
) -> dict[str, ArmHistory]:
    """Return the arms' histories without the confirmations whose files are missing or damaged; all files are read.

    Args:
        rows: The recorded rows.
        study: The study, which says how many trials and seeds there are.
        counted: Which rows count, by arm identity.
        kinds: The kinds of files that a confirmation must have.

    Raises:
        StoreError: if the store cannot be read.
    """
    histories, store = rows.histories(study, counted), rows.ledger.store
    needed = used(study, histories)
    files = [*missing_artifacts(store, needed, kinds), *damaged_artifacts(store, needed, kinds)]
    keys = {file.key for file in files}
    return {
        arm_id: replace(
            history, confirm={slot: row for slot, row in history.confirm.items() if row["key"] not in keys}
        )
        for arm_id, history in histories.items()
    }


def used(study: Study, histories: Mapping[str, ArmHistory]) -> list[Row]:
    """Return the rows of the confirmations that a study's table uses.

    Args:
        study: The study, which says how many trials and seeds there are.
        histories: The histories of its arms, by identity.
    """
    arms = results_of(study, histories).values()
    return [row for arm in arms for row in arm.confirmations().values()]


def trained_again(files: Sequence[Unsound]) -> str:
    """Return the line that says how many confirmations are trained again, and why; empty if there are none.

    Example:
        >>> trained_again([Unsound("0a1b", "ranks"), Unsound("0a1b", "guesses")])
        '1 confirmation is trained again: ranks/0a1b.parquet, guesses/0a1b.parquet are gone or damaged'
    """
    count = len({file.key for file in files})
    if not count:
        return ""
    who = "1 confirmation is" if count == 1 else f"{count} confirmations are"
    names = first_few([file.name for file in files], _NAMED)
    return f"{who} trained again: {names} {'is' if len(files) == 1 else 'are'} gone or damaged"


@dataclass(frozen=True)
class Again:
    """What is trained again, although the ledger has it.

    Args:
        keys: The keys of the trials.
        damaged: The damaged files of all confirmations.
        line: A line about the confirmations; empty if there are none.
    """

    keys: Sequence[str] = ()
    damaged: Sequence[Unsound] = ()
    line: str = ""


def what_trains_again(
    rows: StudyRows,
    whole: Study,
    part: Study,
    counted: Mapping[str, Identity],
    kinds: Sequence[Kind],
    *,
    failed: bool,
) -> Again:
    """Return what is trained again: failed trials on request, and confirmations without sound files.

    The damaged files include those of arms that this run does not train: once files are set aside, tables report them
    as missing.

    Args:
        rows: The recorded rows.
        whole: The study as it is defined.
        part: The part that this run trains.
        counted: Which rows count, by arm identity.
        kinds: The kinds of files that a confirmation must have.
        failed: Whether failed trials are trained again.
    """
    store = rows.ledger.store
    everything = rows.histories(whole, last_counted(rows.ledger, whole)).values()
    damaged = damaged_artifacts(store, [row for arm in everything for row in arm.confirm.values()], kinds)
    histories = rows.histories(part, counted)
    table = used(part, histories)
    keys = {row["key"] for row in table}
    files = [*missing_artifacts(store, table, kinds), *(file for file in damaged if file.key in keys)]
    retried = [row["key"] for arm in histories.values() for row in arm.rows() if row["status"] == "failed"]
    return Again(
        [*(retried if failed else ()), *dict.fromkeys(file.key for file in files)],
        damaged,
        trained_again(files),
    )
