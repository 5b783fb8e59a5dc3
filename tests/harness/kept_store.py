"""A small finished study, and the store of it that is kept for the schema of the ledger.

``python tests/harness/kept_store.py`` trains the study with Ray and packs the store of the present schema. It is run
when the schema is raised; stores of earlier schemas stay, to be refused.
"""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from made_studies import searched, small_study

from topk_platform import Model, Recipe, Study, run
from topk_platform.records.storage.checked_json import SCHEMA_VERSION

__all__ = ["KEPT", "study", "unpacked"]

KEPT = Path(__file__).with_name("kept_stores")
"""The folder of the packed stores, ``schema_N.tar.xz``."""

_AGAIN = "tables"  # the folder of what `topk table` writes for other programs from the rest


def study() -> Study:
    """Return two arms with two search trials and two seeds each."""
    losses, models = map(searched, ("cross_entropy", "smooth_topk_svm")), [Model("mlp", {"hidden": 16})]
    asked = {"recipe": Recipe(epochs=2), "trials": 2, "seeds": 2}
    return small_study(*losses, name="kept", regimes=["clean"], models=models, **asked)


def unpacked(folder: Path, schema: int = SCHEMA_VERSION) -> Path:
    """Return a folder with the kept store of a schema, whose files were unpacked into it."""
    with tarfile.open(KEPT / f"schema_{schema}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Train the study and pack its store."""
    KEPT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as store:
        run(study(), store=store, mlflow="none")
        with tarfile.open(KEPT / f"schema_{SCHEMA_VERSION}.tar.xz", "w:xz") as packed:
            packed.add(f"{store}/{study().name}", study().name, filter=_anonymous)


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return a file of the store without its owner; None for what is left out."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return None if file.name == f"{study().name}/{_AGAIN}" else file


if __name__ == "__main__":
    main()
