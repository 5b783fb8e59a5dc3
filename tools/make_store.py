"""Makes the store that tests/platform/records/test_stores.py reads for ever: a small study as this program writes it.

    python tools/make_store.py        # once for each version of the schema, before it is released

The file is ``tests/platform/records/stores/schema-N.zip``. Existing files of earlier schemas stay as they are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zipfile
from pathlib import Path

from topk_platform import Arm, Float, Loss, Model, Recipe, Regime, Study
from topk_platform.data import load
from topk_platform.protocol.ended import Ended
from topk_platform.records import SCHEMA_VERSION, Ledger, Store, StoreKeeper, last_counted, read_history
from topk_platform.results.from_store import table
from topk_platform.running.driver.boards import in_environment, make_board
from topk_platform.specs import TrialRecord
from topk_platform.training import environment, finish, run_trials

__all__ = ["main", "make", "small_study"]

STORES = Path(__file__).parents[1] / "tests" / "platform" / "records" / "stores"
_MOMENT = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=STORES / f"schema-{SCHEMA_VERSION}.zip")
    to: Path = parser.parse_args().to
    with tempfile.TemporaryDirectory() as folder:
        make(small_study(), Path(folder))
        to.parent.mkdir(parents=True, exist_ok=True)
        _pack(Path(folder), to)
    sys.stdout.write(f"{to}: {to.stat().st_size} bytes\n")


def small_study() -> Study:
    """Return the study: two losses on few points, one of them searched."""
    regime = Regime("ring", "ring", options={"per_class": 4, "sigma": 30.0})
    searched = Loss("smooth_topk_svm", {"tau": Float(0.1, 10, log=True)}, {"tau": 1.0})
    arms = [
        Arm(regime, Model("linear"), loss, 2, Recipe(2, batch_size=8))
        for loss in (Loss("cross_entropy"), searched)
    ]
    return Study("stored", arms, topk=(1, 2), trials=2, seeds=1, baseline="cross_entropy")


def make(study: Study, store: Path) -> None:
    """Train a study here, to the files that a run leaves in a store."""
    ledger = Ledger.open(Store.open(store), study.name)
    data = {study.arm_id(arm): load(arm.regime).fingerprint for arm in study.arms}
    identities = in_environment(study, last_counted(ledger, study, data), environment("cpu"))
    records: list[TrialRecord] = []
    with ledger.writing(study) as writer:
        ledger.identify(identities)
        board = make_board(study, identities, read_history(ledger, study, identities))
        while trials := board.next_trials():
            (record,) = finish(run_trials(trials, StoreKeeper(ledger.store, 1e9)))
            records.append(record.replace_versions(**trials[0].environment))
            board.end(trials[0], Ended.from_record(record))
        for record in records:  # in one commit, which takes less room
            writer.put(record)
    (store / "study.json").write_text(study.to_json())
    (store / "table.csv").write_text(_numbers(study, store))


def _numbers(study: Study, store: Path) -> str:
    """Return the means of a study's cells, a line each."""
    cells = table(study, store=store).cells
    lines = [f"{','.join(key)},{cell.value.mean!r}" for key, cell in sorted(cells.items()) if cell.value]
    return "\n".join([*lines, ""])


def _pack(folder: Path, to: Path) -> None:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            if "lease" not in path.parts and not path.name.startswith("."):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    main()
