"""A study's trials for statistics programs: one tidy CSV file, and its codebook."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from topk_platform.records.rows import Row
from topk_platform.reports.text_tables import rows_to_csv
from topk_platform.results.from_store import read
from topk_platform.specs import Study

__all__ = ["trials_csv"]

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


def trials_csv(study: Study, *, store: str | Path = "runs") -> tuple[str, str]:
    """Return a study's trials that count as one tidy CSV file, and its codebook.

    The file has a row per trial, split and metric. Parameters have columns ``param.NAME``, which are empty if a loss
    has no such parameter. The codebook has a row per column with its meaning.

    Args:
        study: The study.
        store: Folder or URI of the results.

    Raises:
        UserError: if the store has no results of the study.
    """
    held = read(study, store, needed=True)
    counting = {row["key"]: row for history in held.histories.values() for row in history.rows()}
    rows = [
        {**row, **counting[row["key"]]}
        for row in held.ledger.rows(without=("config",))
        if row["key"] in counting
    ]
    rows.sort(key=lambda row: (row["arm"], row["phase"] == "confirm", row["number"], row["seed"]))
    chosen = {row["key"]: json.loads(row["values"]) for row in rows}
    metrics = [f"{split}.{metric}" for split in ("validation", "test") for metric in held.study.metrics]
    own = "the value of {}, chosen or fixed; empty if the loss has no such parameter"
    parameters = sorted({name for values in chosen.values() for name in values})
    meanings = {**_FACTS, **{f"param.{name}": own.format(name) for name in parameters}}
    codebook = [{"column": column, "meaning": meaning} for column, meaning in meanings.items()]
    table = rows_to_csv(list(meanings), _tidy(study.name, rows, chosen, metrics))
    return table, rows_to_csv(("column", "meaning"), codebook)


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
