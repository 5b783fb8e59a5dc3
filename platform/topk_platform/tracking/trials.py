"""What MLflow shows of a trial's rows and of a study's tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topk_platform.errors import UserError
from topk_platform.records.rows import Row
from topk_platform.specs import Trial
from topk_platform.specs.arm import described

__all__ = ["ARMS", "LEDGER", "VIEW", "Arms", "arms_of", "parameters", "values", "view"]

ARMS = "arms.json"
"""The file in a study's ``tables`` folder with the results of each arm."""

LEDGER = "topk.ledger"
"""The tag with a ledger's identity, by which its experiment is known."""

VIEW = f"mlflow.sharedViewState.{LEDGER}"
"""The tag in which MLflow's page keeps the order and the columns of an experiment's runs."""

Arms = dict[str, dict[str, Any]]
"""What each arm came to, by its identity: its ``metric``, ``parameters``, ``metrics`` and ``note``."""

# The values by epoch that people plot. MLflow gets at most _VALUES of them per trial, because a database needs 300
# bytes for each. The ledger has all of them.
_PLOTTED = re.compile(r"train\.loss|learning_rate|validation\.top\d+")
_VALUES = 120


def arms_of(files: Mapping[str, str]) -> Arms:
    """Return the results of each arm in a study's tables.

    Raises:
        UserError: if the file of the arms' results is damaged.
    """
    try:
        arms = json.loads(files.get(ARMS, "{}"))
        names = ("metric", "parameters", "metrics", "note")
        return {arm_id: {name: arm[name] for name in names} for arm_id, arm in arms.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"tables/{ARMS} is damaged: the next run of the study makes it again") from error


def view(arms: Arms) -> dict[str, Any]:
    """Return the state of MLflow's page of runs that shows the best arm first, and the columns that tell arms apart.

    The arms are ordered by the test metric that most of them were chosen by. The columns are this metric, the
    validation metric that orders an arm's search trials, the status, and the parameters that are not the same in all
    arms, without those that are in an arm's name.
    """
    metric = Counter(arm["metric"] for arm in arms.values()).most_common(1)[0][0]
    chosen = [arm["parameters"] for arm in arms.values()]
    names = sorted({name for values in chosen for name in values} - {"regime", "model", "loss"})
    differing = [f"params.`{name}`" for name in names if len({values.get(name) for values in chosen}) > 1]
    shown = [f"metrics.`test.{metric}.{what}`" for what in ("mean", "half_width", "n")]
    columns = [*shown, f"metrics.`final.{metric}`", "tags.`topk.status`", *differing]
    return {"orderByKey": shown[0], "orderByAsc": False, "selectedColumns": columns}


def parameters(trial: Trial) -> dict[str, str]:
    """Return the arm's settings; searched values replace those of the recipe."""
    searched = {name: value for name, value in trial.parameters.items() if value is not None}
    return {name: str(value) for name, value in sorted({**described(trial.arm), **searched}.items())}


def values(row: Row, metric: str, epochs: Sequence[Row]) -> Iterator[tuple[str, float, int, int]]:
    """Yield what MLflow plots of a trial, then what it sorts by: names, values, milliseconds since 1970, and epochs.

    Plots have the training loss, the learning rate and the validation accuracies of equally spaced epochs up to the
    last one. At the end follow ``train_seconds``, the test metrics of a confirmation, and ``final.METRIC`` of a
    completed trial: the validation of the weights that were kept. A pruned trial has none, so it is never among the
    best.

    Args:
        row: The trial's row.
        metric: The metric that its arm is searched by.
        epochs: The rows of its epochs.
    """
    names = [name for name in (epochs[0] if epochs else ()) if _PLOTTED.fullmatch(name)]
    points, count = min(_VALUES // max(len(names), 1), len(epochs)), len(epochs)
    clock = int(1000 * row["started"].timestamp())
    for position, epoch in enumerate(sorted(epochs, key=lambda epoch: int(epoch["epoch"])), start=1):
        clock += round(1000 * (epoch["seconds"] or 0))
        if position * points // count > (position - 1) * points // count:
            yield from ((n, epoch[n], clock, epoch["epoch"]) for n in names if epoch[n] is not None)
    final = {name: row[name] for name in row if name == "train_seconds" or name.startswith("test.")}
    if row["status"] == "completed":
        final[f"final.{metric}"] = row.get(f"validation.{metric}")
    ended = int(1000 * row["ended"].timestamp())
    yield from ((name, value, ended, 0) for name, value in final.items() if value is not None)
