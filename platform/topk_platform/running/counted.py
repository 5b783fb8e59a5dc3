"""What of a store counts for a run: rows by their identity, finished arms, and what is trained again all the same."""

from __future__ import annotations

import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from topk_platform.identity import CHOOSER, Identity
from topk_platform.own_measures import of_scores
from topk_platform.protocol import StudyProgress
from topk_platform.records.files import KINDS, NEEDED, Unsound, damaged_artifacts, missing_artifacts
from topk_platform.records.history import ArmHistory, StudyRows, last_counted, results_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import RowViews
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few, plural
from topk_platform.versions import differences

__all__ = ["Retraining", "as_checked", "expected", "finished", "in_environment", "outdated"]

_NAMED = 3  # files, or components, in a line
_KIND = ("arm", "arm_id", "code_version", "dataset_fingerprint", "versions")
"""The columns that decide whether a row counts, and the arm's name."""


def in_environment(
    study: Study, identities: Mapping[str, Identity], environment: Mapping[str, str]
) -> dict[str, Identity]:
    """Return the arms' identities with an environment; for arms that search, it includes Optuna's version.

    Args:
        study: The study.
        identities: The identities whose environment is replaced, by arm ID.
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
        identities: Which rows count, by arm ID; arms whose data are not known are left out.
    """
    done = [arm_id for arm_id, arm in progress.arms.items() if not arm.left]
    trained_on = {arm_id: identities[arm_id].dataset_fingerprint for arm_id in done}
    return {arm_id: fingerprint for arm_id, fingerprint in trained_on.items() if fingerprint}


def outdated(
    study: Study, ledger: Ledger, counted: Mapping[str, Identity], left: Collection[str]
) -> list[str]:
    """Return why recorded trials do not count, a line for each reason; the reason with the most trials comes first.

    Args:
        study: The study as it is defined now.
        ledger: The ledger with the trials.
        counted: Which rows count, by arm ID.
        left: The IDs of the arms that have trials left to run; the others are not reported.
    """
    if not ledger.exists:
        return []
    rows = RowViews(ledger.read("trials", _KIND))
    trials, arms = Counter[str](), defaultdict[str, set[str]](set)
    renewed = {arm.name for arm in study.arms if study.arm_id(arm) in left}
    # There are few kinds of many rows.
    for kind, count in Counter(zip(*map(rows.column, _KIND), strict=True)).items():
        row = dict(zip(_KIND, kind, strict=True))
        identity = counted[row["arm_id"]] if row["arm_id"] in left else Identity()
        why = identity.excludes(row)
        if row["arm"] in renewed and row["arm_id"] not in counted:
            why = "the study has changed"
        if why:
            if why == "other code":
                changed = differences(row["code_version"], identity.code_version)
                why = f"the code has changed: {first_few(changed, _NAMED)}"
            trials[why] += count
            arms[why].add(row["arm"])
    return [
        f"{plural(count, 'recorded trial')} of {first_few(sorted(arms[why]), 1)}: {why}"
        for why, count in trials.most_common()
    ]


@dataclass(frozen=True)
class Retraining:
    """What is trained again, although the ledger has it.

    Args:
        asked: The keys of what the user asks for: failed trials, and confirmations that lack an own measure.
        unsound: The missing and damaged files of confirmations that the part's table uses.
        damaged: The damaged files of all confirmations. They include those of arms that this run does not train: once
            files are set aside, tables report them as missing.

    Example:
        >>> print(Retraining(unsound=[Unsound("0a1b", "ranks"), Unsound("0a1b", "guesses")]))
        1 confirmation is trained again: ranks/0a1b.parquet, guesses/0a1b.parquet are gone or damaged
    """

    asked: Sequence[str] = ()
    unsound: Sequence[Unsound] = ()
    damaged: Sequence[Unsound] = ()

    @classmethod
    def of(
        cls, rows: StudyRows, whole: Study, part: Study, counted: Mapping[str, Identity], options: RunOptions
    ) -> Retraining:
        """Return what a run trains again; the files of all confirmations are read.

        Args:
            rows: The recorded rows.
            whole: The study as it is defined.
            part: The part that the run trains.
            counted: Which rows count, by arm ID.
            options: The options of the run: whether what failed or lacks a network or a measure is trained again.

        Raises:
            StoreError: if the store cannot be read.
        """
        store, kinds = rows.ledger.store, KINDS if options.networks else NEEDED
        histories = rows.histories(part, counted)
        table = {
            row["key"]: row
            for arm in results_of(part, histories).values()
            for row in arm.confirmations().values()
        }
        everything = rows.histories(whole, last_counted(rows.ledger, whole)).values()
        confirmed = {row["key"]: row for arm in everything for row in arm.confirm.values()}
        damaged = damaged_artifacts(store, (confirmed | table).values(), kinds)
        missing = missing_artifacts(store, table.values(), kinds)
        rows_of_all = [row for arm in histories.values() for row in arm.rows()]
        failed = [row["key"] for row in rows_of_all if options.retry_failed and row["status"] == "failed"]
        own = of_scores(part.measures) if options.measures else ()
        completed = [row for row in table.values() if row["status"] == "completed"]
        lacking = [row["key"] for row in completed if any(row[f"test.{name}"] is None for name in own)]
        unsound = [*missing, *(file for file in damaged if file.key in table)]
        return cls([*failed, *lacking], unsound, damaged)

    @property
    def keys(self) -> list[str]:
        """The keys of the trials."""
        return [*dict.fromkeys([*self.asked, *(file.key for file in self.unsound)])]

    def without(self, histories: Mapping[str, ArmHistory]) -> dict[str, ArmHistory]:
        """Return the arms' histories without the confirmations that are trained again."""
        keys = {*self.keys}
        return {
            arm_id: replace(
                arm, confirm={slot: row for slot, row in arm.confirm.items() if row["key"] not in keys}
            )
            for arm_id, arm in histories.items()
        }

    def __str__(self) -> str:
        count = len({file.key for file in self.unsound})
        if not count:
            return ""
        who = "1 confirmation is" if count == 1 else f"{count} confirmations are"
        names = first_few([file.name for file in self.unsound], _NAMED)
        return f"{who} trained again: {names} {'is' if len(self.unsound) == 1 else 'are'} gone or damaged"
