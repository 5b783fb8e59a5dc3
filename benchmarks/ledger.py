"""What a ledger costs as it grows: a commit, the history that a study goes on from, its table, its status.

    python benchmarks/ledger.py --trials 100000
    python benchmarks/ledger.py --trials 1000000 --folder /tmp/large   # kept for a second look

Trials are made up, 100 arms of equal size with 20 epochs each; everything else is as in a study. Each figure is of a
process of its own, with the most memory that it held.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study
from topk_platform.records.history import last_counted, progress_of, read_history
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage import delta
from topk_platform.records.storage.store import Store
from topk_platform.records.writer import ledger_schema, ledger_table
from topk_platform.results import build_table
from topk_platform.specs import EpochRecord, Trial, TrialRecord
from topk_platform.versions import versions_of

ARMS, EPOCHS, SEEDS = 100, 20, 5
LOSS = Loss("cross_entropy", {"learning_rate": Float(0.01, 1)}, {"learning_rate": 0.1})


def a_study(trials: int) -> Study:
    """A study of so many trials in all."""
    arms = [Arm(Regime(f"r{i}", "digits"), Model("mlp"), LOSS, 3, Recipe(EPOCHS)) for i in range(ARMS)]
    return Study("large", arms, topk=(1, 3), trials=trials // ARMS, seeds=SEEDS)


def rows_of(study: Study, index: int, code: str, schema: pa.Schema) -> pa.Table:
    """The rows of an arm, all of whose trials were completed, and of the confirmations of the best."""
    arm, generator = study.arms[index], np.random.default_rng(index)
    chosen = generator.random(study.trials)
    numbers = [*range(study.trials), *[int(chosen.argmax())] * SEEDS]
    count = len(numbers)
    keys = [f"{index:05d}{i:015d}" for i in range(count)]
    one = ledger_table([a_record(study, arm, code)], schema).slice(0, 1)
    trials = {name: pa.repeat(one[name][0], count) for name in schema.names}
    trials |= {
        "key": pa.array(keys),
        "number": pa.array(numbers),
        "phase": pa.array(["search"] * study.trials + ["confirm"] * SEEDS),
        "seed": pa.array([0] * study.trials + list(range(1, SEEDS + 1))),
        "values": pa.array([json.dumps({"learning_rate": float(chosen[n])}) for n in numbers]),
        **{f"validation.{metric}": pa.array(chosen[numbers]) for metric in study.metrics},
    }
    epochs = {name: pa.nulls(count * EPOCHS, schema.field(name).type) for name in schema.names}
    measured = [name for name in schema.names if name.startswith("validation.")]
    epochs |= {
        name: pa.array(generator.random(count * EPOCHS)) for name in (*measured, "train.loss", "seconds")
    }
    epochs |= {
        "kind": pa.repeat(pa.scalar("epochs"), count * EPOCHS),
        "key": pa.array(np.repeat(np.array(keys), EPOCHS)),
        "epoch": pa.array(np.tile(np.arange(1, EPOCHS + 1), count)),
    }
    return pa.concat_tables(pa.table(kind, schema=schema) for kind in (trials, epochs))


def a_record(study: Study, arm: Arm, code: str) -> TrialRecord:
    """A record like all others."""
    trial = Trial(study.name, study.arm_id(arm), arm, study.topk, "search", 0, 0, 0, LOSS.first, "f", code)
    metrics = dict.fromkeys(study.metrics, 0.5)
    epoch = EpochRecord(1, 1.0, metrics, 0.5, 0.1)
    return TrialRecord(trial, "completed", "", metrics, metrics, (epoch,), 1.0, 1e9, 1e9, {"torch": "2.15.0"})


def make(study: Study, ledger: Ledger) -> None:
    """Write the study's ledger, if it is not there."""
    if ledger.exists:
        return
    with ledger.writing(study) as writer:
        schema, codes = ledger_schema(study.metrics), versions_of(study)
        for index, arm in enumerate(study.arms):
            writer.table.append(rows_of(study, index, codes[study.arm_id(arm)], schema))


def commit(study: Study, ledger: Ledger) -> None:
    """Fifty trials, one after the other, to a ledger that has the rest; the median of a commit."""
    schema = ledger_schema(study.metrics)
    table, times = delta.Writing(ledger.store, schema), []
    rows = ledger_table([a_record(study, study.arms[0], "another")], schema)
    for _ in range(50):
        began = time.perf_counter()
        table.append(rows)
        times.append(time.perf_counter() - began)
    print(f"a commit: {1e3 * float(np.median(times)):.1f} ms", end="; ")


def table(study: Study, ledger: Ledger) -> None:
    """What `topk table` does."""
    result = build_table(study, read_history(ledger, study, last_counted(ledger, study), curves=False))
    assert len(result.choices) == ARMS


def progress(study: Study, ledger: Ledger) -> None:
    """What a run begins with."""
    counted = last_counted(ledger, study)
    assert progress_of(study, counted, read_history(ledger, study, counted)).left == 0


PARTS: dict[str, Callable[[Study, Ledger], None]] = {"commit": commit, "table": table, "progress": progress}


def main() -> None:
    """Make the ledger and time each part in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    study = a_study(options.trials)
    if options.part:
        ledger = Ledger.open(Store.open(options.folder), study.name)
        began = time.perf_counter()
        PARTS[options.part](study, ledger)
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{options.part}: {time.perf_counter() - began:.2f} s, {most:.2f} GiB")
        return
    with tempfile.TemporaryDirectory() as folder:
        location = str(options.folder or folder)
        make(study, Ledger.open(Store.open(location), study.name))
        for part in PARTS:
            command = [
                sys.executable,
                __file__,
                "--trials",
                str(options.trials),
                "--folder",
                location,
                "--part",
                part,
            ]
            subprocess.run(command, check=True)  # noqa: S603 - our own interpreter


if __name__ == "__main__":
    main()
