"""A study's trials for other tools: one tidy CSV file with its codebook, or an Optuna journal file."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topk_platform.errors import UserError
from topk_platform.records.history import ArmHistory
from topk_platform.records.rows import Row
from topk_platform.reports.text_tables import rows_to_csv
from topk_platform.results.from_store import read
from topk_platform.specs import Study
from topk_platform.specs.checks import check

if TYPE_CHECKING:
    from optuna.storages import JournalStorage
    from optuna.trial import FrozenTrial

__all__ = ["Written", "export_csv", "export_optuna"]

_FACTS = {
    "study": "the study's name",
    "key": "the trial's key, for topk replay",
    "arm": "regime/model/loss",
    "regime": "the regime's name: a dataset with its conditions",
    "model": "the network's label",
    "loss": "the loss's label",
    "phase": "search: scored on the validation split; confirm: the chosen configuration, trained with a fresh seed and "
    "scored on the test split too",
    "number": "the number of the search trial in its arm, from 1,000,000 on for a second search; for a confirmation, "
    "of the search trial that it confirms",
    "seed": "0 in the first search, 1,000,000 in the second; 1, 2, ... in confirmations, 1,000,001, ... in those of a "
    "second search; all arms use the same seeds, so that arms can be paired",
    "status": "completed, pruned, diverged (a number was not finite) or failed (its code raised an exception)",
    "reason": "why the trial was pruned, diverged or failed",
    "metric": "top5: share of samples with the true class among the 5 best; macro_: mean over classes; many_, medium_, "
    "few_: mean over the classes with many, some or few training samples; candidates99: least K for 99 %; autkc5: mean "
    "of top1 to top5; average5: share of samples whose true class is in their set, with sets of 5 classes on average; "
    "size95: mean size of sets that contain the true class for 95 % of the samples; coverage95: the share that do; "
    "sets are cut at a threshold from the validation split; ece: expected calibration error, 15 bins of equally many "
    "samples; nll: negative log-likelihood in nats; brier: Brier score, from 0 to 2",
    "split": "validation or test",
    "value": "the metric's value, a fraction of 1, or for candidates and sizes a number of classes; empty if none",
    "train_seconds": "seconds of training, without scoring",
    "epochs": "the number of the last epoch after which the trial was validated",
    "dataset_fingerprint": "hash of the dataset before conditions are applied",
    "code_version": "components that the trial uses, with their versions",
}


@dataclass(frozen=True)
class Written:
    """The outcome of an export.

    Args:
        files: The files that were written.
        trials: How many trials are in them.
    """

    files: tuple[Path, ...]
    trials: int


def export_csv(study: Study, to: str | Path, *, store: str | Path = "runs") -> Written:
    """Write a study's trials that count as one tidy CSV file with its codebook.

    The file has a row per trial, split and metric. Parameters have columns ``param.NAME``, which are empty if a loss
    has no such parameter. The codebook, ``NAME.codebook.csv`` beside ``NAME.csv``, has a row per column with its
    meaning.

    Args:
        study: The study.
        to: The CSV file.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study, or a file cannot be written.
    """
    path = Path(to).expanduser()
    check(bool(path.name), f"--to must be a file, got {str(to)!r}")
    held = read(study, store, needed=True)
    counting = {row["key"]: row for history in held.histories.values() for row in history.rows()}
    rows = [
        {**row, **counting[row["key"]]}
        for row in held.ledger.rows(without=("config",))
        if row["key"] in counting
    ]
    rows.sort(key=lambda row: (row["arm"], row["phase"] == "confirm", row["number"], row["seed"]))
    chosen = {row["key"]: json.loads(row["values"]) for row in rows}
    parameters = sorted({name for values in chosen.values() for name in values})
    metrics = [f"{split}.{metric}" for split in ("validation", "test") for metric in held.study.metrics]
    columns = [*_FACTS, *(f"param.{name}" for name in parameters)]
    codebook = path.with_suffix(".codebook.csv")
    _write(path, rows_to_csv(columns, _tidy(study.name, rows, chosen, metrics)))
    _write(codebook, rows_to_csv(("column", "meaning"), _meanings(parameters)))
    return Written((path, codebook), len(rows))


def _tidy(
    study: str, rows: Iterable[Row], chosen: Mapping[str, Mapping[str, Any]], metrics: list[str]
) -> Iterator[dict[str, Any]]:
    for row in rows:
        values = {f"param.{name}": value for name, value in chosen[row["key"]].items()}
        for name in metrics:
            split, _, metric = name.partition(".")
            if split == "test" and row["phase"] == "search":
                continue
            fact = {"study": study, "metric": metric, "split": split, "value": row.get(name)}
            yield {**row, **values, **fact}


def _meanings(parameters: Iterable[str]) -> Iterator[dict[str, str]]:
    own = "the value of {}, chosen or fixed; empty if the loss has no such parameter"
    for column, meaning in {**_FACTS, **{f"param.{name}": own.format(name) for name in parameters}}.items():
        yield {"column": column, "meaning": meaning}


def _write(path: Path, text: str) -> None:
    with _writing(path):
        path.write_text(text, encoding="utf-8")


def export_optuna(study: Study, to: str | Path, *, store: str | Path = "runs") -> Written:
    """Write a study's searches as an Optuna journal file, with one Optuna study for each arm that searches.

    ``optuna-dashboard FILE`` shows it; ``optuna.load_study(study_name=ARM, storage=JournalStorage(JournalFileBackend(
    FILE)))`` opens it for ``optuna.visualization``. Pruned trials have their values by epoch. Diverged and failed
    trials have the state FAIL, although the search itself counts them as pruned. Every trial has its key and its
    status as attributes.

    Args:
        study: The study.
        to: The journal file; it must not exist yet, because Optuna would add to it.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study, or the file exists or cannot be written.
    """
    import optuna  # noqa: PLC0415 - Optuna, which CSV does not need
    from optuna.storages import JournalStorage  # noqa: PLC0415 - as above
    from optuna.storages.journal import JournalFileBackend  # noqa: PLC0415 - as above

    path = Path(to).expanduser()
    with _writing(path):
        if path.exists() or not path.absolute().parent.is_dir():
            raise UserError(f"--to must be a new file in an existing folder, got {str(path)!r}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    histories = read(study, store, needed=True, curves=True).histories
    searched = [history for history in histories.values() if history.arm.is_searched]
    with _writing(path), tempfile.TemporaryDirectory(prefix=".", suffix=".tmp", dir=path.parent) as folder:
        part = Path(folder) / path.name  # if it breaks off, nothing is left that a second try would refuse
        storage = JournalStorage(JournalFileBackend(str(part)))
        trials = sum(_add(storage, study.name, history) for history in searched)
        part.replace(path)
    return Written((path,), trials)


def _add(storage: JournalStorage, study: str, history: ArmHistory) -> int:
    """Add an arm's search as an Optuna study; return how many trials it has."""
    import optuna  # noqa: PLC0415 - as above

    arm, trials = history.arm, _frozen(history)
    optuna_study = optuna.create_study(storage=storage, study_name=arm.name, direction="maximize")
    with warnings.catch_warnings():  # Optuna warns that names of metrics are experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna_study.set_metric_names([f"validation.{arm.metric}"])
    optuna_study.set_user_attr("topk.study", study)
    optuna_study.add_trials(trials)
    return len(trials)


def _frozen(history: ArmHistory) -> list[FrozenTrial]:
    """Return an arm's search trials as Optuna's, in the order of their numbers."""
    from optuna.trial import TrialState, create_trial  # noqa: PLC0415 - as above

    from topk_platform.protocol.suggest import to_optuna  # noqa: PLC0415 - as above

    states = {"completed": TrialState.COMPLETE, "pruned": TrialState.PRUNED}
    distributions, frozen = to_optuna(history.arm.loss.space), []
    for number, ended in sorted(history.ended().items()):
        row = history.search[number]
        frozen.append(
            create_trial(
                state=states.get(ended.status, TrialState.FAIL),
                value=ended.objective if ended.status == "completed" else None,
                params=dict(ended.values),
                distributions={name: distributions[name] for name in ended.values},
                intermediate_values=dict(ended.curve),
                user_attrs={
                    "topk.key": row["key"],
                    "topk.number": number,
                    "topk.status": ended.status,
                    "topk.reason": row["reason"],
                    "topk.train_seconds": row["train_seconds"],
                },
            )
        )
    return frozen


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Report that an export's file cannot be written, wherever the block finds that out.

    Args:
        path: The file.

    Raises:
        UserError: if the block raises an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        raise UserError(f"--to {str(path)!r} cannot be written: {error}") from error
