"""Sets of an exported network: its calibration at export, files, the command line, the card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process import topk
from made_studies import small_study
from trained_studies import train_study

from topk_platform import Recipe, Regime, Study, UserError, export_model, load_model
from topk_platform.data import Dataset, load
from topk_platform.serving.conformal import calibrate, prevalences_of
from topk_platform.serving.set_calibration import METHODS

Exported = tuple[Path, Study, Path]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """An export that is calibrated, its study and its store."""
    folder = tmp_path_factory.mktemp("sets")
    budget = {"recipe": Recipe(4, batch_size=32), "seeds": 1}
    study = small_study(models=["linear"], k=2, measures=("size90",), **budget)
    train_study(study, folder / "runs")
    export_model(study, study.arms[0].name, folder / "out", store=folder / "runs", calibrate=True)
    return folder / "out", study, folder / "runs"


def the_data() -> Dataset:
    data = load(Regime("r", "digits"))
    assert isinstance(data, Dataset)
    return data


@pytest.mark.parametrize("method", METHODS)
def test_the_test_set_is_covered(method: str, exported: Exported) -> None:
    """Within 4 standard errors, of 360 test samples and 270 calibration samples, of the requested coverage."""
    model, data = load_model(exported[0]), the_data()
    assert model.calibration is not None and (model.calibration.tuned, model.calibration.samples) == (90, 270)
    result = model.sets(data.test.tensor, 0.9, method)
    labelled = zip(result, data.test.labels.tolist(), strict=True)
    covered = np.mean([label in {c.label for c in row} for row, label in labelled])
    assert covered >= 0.9 - 4 * np.sqrt(0.9 * 0.1 * (1 / 360 + 1 / 270))
    card = (exported[0] / "README.md").read_text()
    assert f"| {method} | 90% | {covered:.2%} |" in card
    for row in result:
        chances = [c.probability for c in row]
        assert 1 <= len(row) <= 10 and chances == sorted(chances, reverse=True) and sum(chances) <= 1 + 1e-9


def test_an_export_is_calibrated_from_the_command_line_and_keeps_it(
    exported: Exported, tmp_path: Path
) -> None:
    """Of a long tail: most classes have a single sample, one has none; the coverage is that of all."""
    export_model(exported[1], exported[1].arms[0].name, tmp_path / "out", store=exported[2])
    inputs, labels = the_data().test.tensor, the_data().test.labels
    rows = [*range(90), *((labels == label).nonzero()[-1].item() for label in range(1, 9))]
    rows = [row for row in rows if row > 89 or labels[row] == 0]
    for label in range(10):
        (tmp_path / "mine" / str(label)).mkdir(parents=True)
    for row in rows:
        np.save(tmp_path / "mine" / str(int(labels[row])) / f"{row:03}.npy", inputs[row].numpy())
    code, out, err = topk("predict", str(tmp_path / "out"), str(tmp_path / "mine"), "--calibrate")
    assert (code, err) == (0, "")
    assert out.startswith(f"calibrated on {len(rows)} inputs, all classes together")
    model = load_model(tmp_path / "out")
    assert model.calibration is not None and model.calibration.tuned == len(rows) // 4
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"of the {len(rows)} samples decided" in card and card.count("## Sets") == 1
    path = str(min((tmp_path / "mine" / "0").iterdir()))
    assert topk("predict", str(tmp_path / "out"), path, "--coverage", "50")[0] == 0
    assert topk("predict", str(tmp_path / "out"), path, path, "--calibrate")[0] == 2
    files = sorted((tmp_path / "mine").rglob("*.npy"))
    assert model.calibration == model.calibrated(files, [int(file.parent.name) for file in files]).calibration
    (tmp_path / "empty").mkdir()
    (tmp_path / "other" / "ten").mkdir(parents=True)
    none = "--calibrate must be"
    for name, why in (("empty", none), ("gone", none), ("other", "for 'ten'")):
        code, _, err = topk("predict", str(tmp_path / "out"), str(tmp_path / name), "--calibrate")
        assert code == 2 and why in err
    assert load_model(tmp_path / "out").calibration == model.calibration


def test_sets_from_the_command_line(exported: Exported, tmp_path: Path) -> None:
    inputs = the_data().test.tensor[:3]
    paths = []
    for row, part in enumerate(inputs):
        np.save(tmp_path / f"{row}.npy", part.numpy())
        paths.append(str(tmp_path / f"{row}.npy"))
    expected = load_model(exported[0]).sets(inputs, 0.95, "prevalence")
    assert load_model(exported[0]).predict_sets(paths, 0.95, "prevalence") == expected
    options = (*paths, "--coverage", "95", "--method", "prevalence")
    code, out, _ = topk("predict", str(exported[0]), *options, "--json")
    data: list[dict[str, Any]] = json.loads(out)
    assert code == 0 and [[c["label"] for c in image["set"]] for image in data] == [
        [c.label for c in row] for row in expected
    ]
    code, out, _ = topk("predict", str(exported[0]), *options, "--format", "csv")
    assert code == 0 and out.count("\n") == 1 + sum(map(len, expected))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--coverage", "0.95"], "do you mean 95?"),
        (["--coverage", "100"], "got 100"),
        (["--coverage", "99.9"], "at least 999 calibration samples, and this network has 270"),
        (["--coverage", "90", "-k", "2"], "-k"),
        (["--method", "prevalence"], "--coverage"),
        (["--coverage", "90", "--method", "prevalance"], "did you mean 'prevalence'"),
    ],
)
def test_bad_options_are_one_line(options: list[str], why: str, exported: Exported) -> None:
    code, out, err = topk("predict", str(exported[0]), "x.npy", *options)
    assert code == 2 and not out and why in " ".join(err.split())


def test_a_network_without_calibration_names_the_remedies(exported: Exported, tmp_path: Path) -> None:
    _, study, store = exported
    export_model(study, study.arms[0].name, tmp_path / "out", store=store)
    code, _, err = topk("predict", str(tmp_path / "out"), "x.npy", "--coverage", "90")
    assert code == 2 and "PHOTOS --calibrate" in " ".join(err.split())
    model, data = load_model(tmp_path / "out"), the_data()
    with pytest.raises(UserError, match="calibrate"):
        model.predict_sets(["x.npy"])
    own = model.calibrated(data.validation.tensor, data.validation.labels)
    assert own.calibration is not None and own.calibration.samples == 270
    small = data.validation.labels.numpy().astype(np.uint16)
    assert model.calibrated(data.validation.tensor, small).calibration == own.calibration
    assert np.mean([len(row) for row in own.sets(data.test.tensor, 0.9)]) < 3
    with pytest.raises(UserError, match=r"labels must be in \[0, 10\), got 0 to 10"):
        model.calibrated(data.test.tensor[:2], data.test.labels[:2].new_tensor([0, 10]))
    with pytest.raises(UserError, match="labels must be one for each of n > 0 inputs"):
        model.calibrated(data.test.tensor[:2], data.test.labels[:3])
    for labels in ([0.0, 1.0], ["a", "b"]):
        with pytest.raises(UserError, match="labels must be"):
            model.calibrated(data.test.tensor[:2], labels)  # type: ignore[arg-type]


def test_a_calibrated_network_keeps_its_training_shares(exported: Exported) -> None:
    """With method "prevalence", recalibration on your own samples gives the sets of a calibration with these shares."""
    model, data = load_model(exported[0]), the_data()
    shares = tuple(count / 55 for count in range(1, 11))
    assert model.calibration is not None
    skewed = replace(model, calibration=replace(model.calibration, prevalences=shares))
    again = skewed.calibrated(data.validation.tensor, data.validation.labels)
    assert again.calibration is not None and again.calibration.prevalences == shares
    scores = model.scores(data.validation.tensor)
    key, method = model.calibration.key, "prevalence"
    expected = calibrate(scores, data.validation.labels, prevalences_of(torch.arange(1, 11)), key)
    own = replace(model, calibration=expected)
    assert again.sets(data.test.tensor, 0.9, method) == own.sets(data.test.tensor, 0.9, method)
    assert again.sets(data.test.tensor, 0.9, method) != again.sets(data.test.tensor, 0.9, "threshold")


def test_a_calibration_of_another_network_is_refused(exported: Exported, tmp_path: Path) -> None:
    _, study, store = exported
    export_model(study, study.arms[0].name, tmp_path, store=store, calibrate=True)
    path = tmp_path / "calibration.json"
    content = json.loads(path.read_text())
    for change, why in (
        ({"key": "other"}, "belongs to trial other"),
        ({"temperature": -1}, "temperature must be above 0"),
        ({"nonconformity": content["nonconformity"] | {"prevalence": [2.0, 1.0]}}, "equally many"),
        ({"format": 2}, "format must be 3"),
    ):
        path.write_text(json.dumps(content | change))
        with pytest.raises(UserError, match=why) as caught:
            load_model(tmp_path)
        assert str(path) in str(caught.value)
    export_model(study, study.arms[0].name, tmp_path, store=store)
    assert not path.exists() and load_model(tmp_path).calibration is None
