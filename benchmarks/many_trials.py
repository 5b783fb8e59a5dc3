"""What 10,000 trials cost in MLflow: writing them, opening the study again, and its first page.

    python benchmarks/many_trials.py --trials 10000

The trials are made up: 20 arms, of each 5 confirmations and for the rest search trials, of 20 epochs.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.specs import EpochRecord, Phase, Trial, TrialRecord
from topk_platform.tracking.feed import sync, tracking_uri
from topk_platform.tracking.writing import Experiment

_ARMS, _CONFIRMATIONS, _EPOCHS = 20, 5, 20


def a_study() -> Study:
    """Return a study of 20 arms."""
    loss = Loss("ldam", {"learning_rate": Float(0.001, 1, log=True)}, {"learning_rate": 0.1})
    regimes = [Regime(f"r{number}", "digits") for number in range(_ARMS)]
    arms = [Arm(regime, Model("mlp"), loss, 3, Recipe(epochs=_EPOCHS)) for regime in regimes]
    return Study("many-trials", arms, topk=(1, 3, 5), trials=10, seeds=_CONFIRMATIONS)


def records(study: Study, count: int) -> Iterator[TrialRecord]:
    """Yield made-up records, the same number for each arm."""
    for arm in study.arms:
        for number in range(count // _ARMS):
            seed = max(0, number - count // _ARMS + 1 + _CONFIRMATIONS)
            yield record(study, arm, number if not seed else 0, seed)


def record(study: Study, arm: Arm, number: int, seed: int) -> TrialRecord:
    """Return the record of a trial that nobody trained."""
    values = {"learning_rate": round(10 ** -(3 * ((0.618 * number) % 1)), 6)}
    phase: Phase = "confirm" if seed else "search"
    trial = Trial("many-trials", study.arm_id(arm), arm, study.topk, phase, number, seed, 0, values, "f", "c")
    best = math.exp(-((math.log10(values["learning_rate"]) + 1.5) ** 2)) * 0.9
    epochs = tuple(
        EpochRecord(e, 3 / e, dict.fromkeys(study.metrics, best * e / _EPOCHS), 0.5, 0.1)
        for e in range(1, _EPOCHS + 1)
    )
    metrics = dict.fromkeys(study.metrics, best)
    test = metrics if seed else None
    begun = 1.7e9 + 60 * number
    ended = TrialRecord(trial, "completed", "", metrics, test, epochs, 10.0, begun, begun + 10)
    return dataclasses.replace(ended, versions={"torch": "2"})


def main() -> None:
    """Print one row of a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--store", help="A folder to keep; a temporary one by default.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        measure(Path(given.store or scratch), given.trials)


def measure(folder: Path, count: int) -> None:
    """Write a study to MLflow, and measure."""
    study, store = a_study(), Store.open(folder)
    ledger = Ledger.open(store, study.name)
    if not ledger.exists:
        with ledger.writing(study) as writer:
            for ended in records(study, count):
                writer.put(ended)
        ledger.store.write("tables/table.md", b"| made | up |\n|---|---|\n| 1 | 2 |\n")
    began = time.perf_counter()
    sync(study.name, store=folder)
    written = time.perf_counter() - began
    began = time.perf_counter()
    experiment = Experiment(ledger, tracking_uri(folder), folder)
    held = sum(map(experiment.has, ledger.rows()))
    opened = time.perf_counter() - began
    size = (folder / "mlflow.db").stat().st_size / 2**20
    print(
        f"{count} | {held} | {written:.1f} s | {opened:.1f} s | {first_page(folder):.2f} s | {size:.0f} MiB",
        flush=True,
    )


def first_page(folder: Path) -> float:
    """Return the seconds of the search that MLflow's page makes when it opens: 100 runs by their start, and below."""
    from mlflow import MlflowClient  # noqa: PLC0415 - seconds of import

    client = MlflowClient(tracking_uri(folder))
    experiment = client.get_experiment_by_name("many-trials").experiment_id
    began = time.perf_counter()
    client.search_runs([experiment], max_results=100, order_by=["attributes.start_time DESC"])
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
