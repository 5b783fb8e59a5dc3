"""What of a ledger counts for a run: rows by their identity, and what of them is trained again all the same."""

from __future__ import annotations

import importlib.metadata
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from topk_platform.identity import CHOOSER, Identity
from topk_platform.own_measures import of_scores
from topk_platform.protocol import StudyProgress
from topk_platform.records.files import KINDS, NEEDED, Unsound, damaged_artifacts, missing_artifacts
from topk_platform.records.history import ArmHistory, StudyRows, last_counted, progress_of, results_of
from topk_platform.records.ledger import Ledger
from topk_platform.records.rows import RowViews
from topk_platform.running.run_options import RunOptions
from topk_platform.specs import Study
from topk_platform.specs.checks import first_few, plural
from topk_platform.versions import differences

__all__ = ["Counted", "Retraining", "expected", "in_environment", "outdated"]

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
        keys: The keys of the trials: those of unsound files, and those that the user asks for, which are failed trials
            and confirmations that lack an own measure.
        unsound: The missing and damaged files of confirmations that the part's table uses.
        damaged: The damaged files of all confirmations. They include those of arms that this run does not train: once
            files are set aside, tables report them as missing.

    Example:
        >>> print(Retraining(["0a1b"], unsound=[Unsound("0a1b", "ranks"), Unsound("0a1b", "guesses")]))
        1 confirmation is trained again: ranks/0a1b.parquet, guesses/0a1b.parquet are gone or damaged
    """

    keys: Sequence[str] = ()
    unsound: Sequence[Unsound] = ()
    damaged: Sequence[Unsound] = ()

    def __str__(self) -> str:
        count = len({file.key for file in self.unsound})
        if not count:
            return ""
        who = "1 confirmation is" if count == 1 else f"{count} confirmations are"
        names = first_few([file.name for file in self.unsound], _NAMED)
        return f"{who} trained again: {names} {'is' if len(self.unsound) == 1 else 'are'} gone or damaged"


@dataclass
class Counted:
    """What of a study's ledger counts for a run.

    Args:
        rows: The recorded rows.
        whole: The study as it is defined.
        part: The part that the run trains.
        options: The options of the run: whether what failed or lacks a network or a measure is trained again.
        identities: Which rows of the part count, by arm ID.
    """

    rows: StudyRows
    whole: Study
    part: Study
    options: RunOptions
    identities: Mapping[str, Identity]

    def check(self, downloads: bool) -> None:
        """Check the part and its data; from now on rows count by the code and the data that were seen.

        Args:
            downloads: Whether to download the datasets that are not on disk.

        Raises:
            UserError: as :func:`~topk_platform.running.preflight.arm_checks.check_study`.
        """
        from topk_platform.running.preflight.arm_checks import check_study  # noqa: PLC0415 - torch

        checked, known = check_study(self.part, downloads, self.finished()), self.identities
        now = {
            arm_id: replace(identity, environment=known[arm_id].environment)
            for arm_id, identity in checked.items()
        }
        if now != known:  # else all files of confirmations would be read once more
            self.identities = now
            del self.again

    def renew(self) -> None:
        """Take in what another run has written meanwhile."""
        self.rows.refresh()
        if self.again.keys or self.again.damaged:
            del self.again

    def histories(self) -> dict[str, ArmHistory]:
        """Return the histories of the part's arms by arm ID, without what is trained again."""
        again = {*self.again.keys}
        return {
            arm_id: replace(
                arm,
                search={slot: row for slot, row in arm.search.items() if row["key"] not in again},
                confirm={slot: row for slot, row in arm.confirm.items() if row["key"] not in again},
            )
            for arm_id, arm in self.rows.histories(self.part, self.identities).items()
        }

    def progress(self) -> StudyProgress:
        """Return the progress of the part, without what is trained again."""
        return progress_of(self.part, self.identities, self.histories())

    def finished(self) -> dict[str, str]:
        """Return the arms with nothing left to run, each with the fingerprint of its data, unless that is not known."""
        done = [arm_id for arm_id, arm in self.progress().arms.items() if not arm.left]
        trained_on = {arm_id: self.identities[arm_id].dataset_fingerprint for arm_id in done}
        return {arm_id: fingerprint for arm_id, fingerprint in trained_on.items() if fingerprint}

    @cached_property
    def again(self) -> Retraining:
        """What is trained again, although it is recorded; the files of all confirmations are read, once.

        Raises:
            StoreError: if the store cannot be read.
        """
        rows, options = self.rows, self.options
        store, kinds = rows.ledger.store, KINDS if options.networks else NEEDED
        histories = rows.histories(self.part, self.identities)
        table = {
            row["key"]: row
            for arm in results_of(self.part, histories).values()
            for row in arm.confirmations().values()
        }
        confirmed = {
            row["key"]: row for arm in rows.histories(self.whole).values() for row in arm.confirm.values()
        }
        damaged = damaged_artifacts(store, (confirmed | table).values(), kinds)
        missing = missing_artifacts(store, table.values(), kinds)
        rows_of_all = [row for arm in histories.values() for row in arm.rows()]
        failed = [row["key"] for row in rows_of_all if options.retry_failed and row["status"] == "failed"]
        own = of_scores(self.part.measures) if options.measures else ()
        completed = [row for row in table.values() if row["status"] == "completed"]
        lacking = [row["key"] for row in completed if any(row[f"test.{name}"] is None for name in own)]
        unsound = [*missing, *(file for file in damaged if file.key in table)]
        keys = dict.fromkeys([*failed, *lacking, *(file.key for file in unsound)])
        return Retraining([*keys], unsound, damaged)
