"""Uses each extension of ``additions.py`` as a study would; run in the copy of the repository that has them.

There is a function for each kind. The names of those that end well are printed, then the code version of an arm that
uses none of the extensions.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import torch
from made_studies import searched, small_study
from trained_studies import train_study

import topk_losses
from topk_losses import functional
from topk_platform import Loss, Protocol, Recipe, Regime, Study, data, table
from topk_platform.protocol.suggest import check_sampler
from topk_platform.reports.catalogue import as_format
from topk_platform.testing import fake_run
from topk_platform.training.losses import build_loss
from topk_platform.versions import version_of


def trained(study: Study, folder: Path) -> None:
    """Train all trials of a study, which went through JSON."""
    train_study(Study.from_json(study.to_json()), folder)


def faked(study: Study, store: Path) -> list[dict[str, object]]:
    return fake_run(study, store, lambda trial: 0.9 - 0.3 * (trial.number % 3)).rows()


def use_loss(folder: Path) -> None:
    assert "Doubled" in topk_losses.__all__ and "doubled" in functional.__all__
    scores = torch.zeros(2, 3, requires_grad=True)
    build_loss(Loss("doubled"), {}, 2, torch.tensor([5, 5, 5]))(scores, torch.tensor([0, 1])).backward()
    assert scores.grad.abs().sum() > 0


def use_dataset(folder: Path) -> None:
    assert len(data.DATASETS["corners"](10).train) == 24
    regime = Regime("r", "corners", options={"per_class": 10})
    trained(small_study(regimes=[regime], k=1, seeds=1), folder)


def use_model(folder: Path) -> None:
    trained(small_study(models=["halved"], k=1, seeds=1), folder)


def use_sampler(folder: Path) -> None:
    from topk_platform import BruteForce, Choice

    loss = Loss("cross_entropy", {"batch_size": Choice((16, 32, 64))}, {"batch_size": 32})
    study = small_study(loss, recipe=Recipe(4), protocol=Protocol(BruteForce()), trials=3, seeds=1)
    check_sampler(study.arms[0], 3)
    rows = faked(study, folder)
    sizes = {json.loads(row["values"])["batch_size"] for row in rows if row["phase"] == "search"}
    assert sizes == {16, 32, 64}


def use_table_format(folder: Path) -> None:
    study = small_study(searched(), recipe=Recipe(4), trials=6, seeds=2)
    faked(study, folder)
    assert as_format("counts", table(study, store=folder)).endswith(" cells")


if __name__ == "__main__":
    for use in [function for name, function in list(globals().items()) if name.startswith("use_")]:
        with tempfile.TemporaryDirectory() as folder:
            use(Path(folder))
        sys.stdout.write(f"{use.__name__.removeprefix('use_')}\n")
    sys.stdout.write(f"{version_of(small_study(k=1).arms[0])}\n")
