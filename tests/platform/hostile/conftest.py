"""Good files of each kind, from one small study, and a process that runs commands in their folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hostile
import numpy as np
import pytest
from forks import Commands, commands
from made_studies import searched, small_study
from trained_studies import train_study

from topk_platform import Claim, Contrast, Model, Regime, Study, export_model
from topk_platform.reports.findings_export import findings
from topk_platform.specs import LabelNoise


def small() -> Study:
    losses, regime = ("cross_entropy", "smooth_topk_svm"), Regime("noisy", "digits", (LabelNoise(0.2),))
    gap = Contrast.between(*(f"noisy/mlp/{loss}" for loss in reversed(losses)), "top3")
    claim = Claim(
        name="level", text="They are level.", source="me", contrasts=[gap], direction="within", tolerance=9
    )
    asked = {"trials": 2, "seeds": 3, "claims": [claim], "models": [Model("mlp", {"hidden": 8})]}
    return small_study(*map(searched, losses), name="evident", regimes=[regime], **asked)


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``good.json.gz``, the exported network ``good`` and an input for it."""
    folder, study = tmp_path_factory.mktemp("good"), small()
    train_study(study, folder / "runs")
    (folder / "good.json.gz").write_bytes(findings(study, store=folder / "runs").to_bytes())
    export_model(study, study.arms[0].name, folder / "good", store=folder / "runs")
    np.save(folder / "x.npy", np.zeros((1, 8, 8), np.float32))
    hostile.write_canary(folder)
    return folder


@pytest.fixture(scope="session")
def topk(good: Path) -> Iterator[Commands]:
    """Commands in that folder; one core, as a fork has none of its parent's threads."""
    with commands(good, OMP_NUM_THREADS="1", COLUMNS="200") as result:
        yield result
