"""A confirmed network taken out of its store: it says of files what was scored when it was tested."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from in_process import topk
from made_studies import small_study
from PIL import Image
from torch import Tensor
from trained_studies import train_study

from topk_platform import Recipe, Regime, Study, UserError, export_model, load_model
from topk_platform.data import Dataset, data_at, load
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.serving.classifier import Classifier
from topk_platform.serving.flavor import Predictor, _load_pyfunc
from topk_platform.specs import TrialRecord

SEEDS = 2
DOCS = Path(__file__).parents[3] / "docs"
Trained = tuple[Path, Study]


def one(regime: Regime, model: str) -> Study:
    return small_study(regimes=[regime], models=[model], k=2, recipe=Recipe(2, batch_size=8), seeds=SEEDS)


@pytest.fixture(scope="module", params=["image_folder", "image_files"])
def trees(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    photos_of_trees: Path,
) -> Trained:
    """A folder with data and a store, and the study that was run on them."""
    folder = tmp_path_factory.mktemp("trees")
    options = {"size": 8} | ({"resize": 9} if request.param == "image_files" else {})
    study = one(Regime("trees", request.param, options={"folder": "trees", **options}), "convnet")
    (folder / "data").symlink_to(photos_of_trees)
    with data_at(folder / "data"):
        train_study(study, folder / "runs")
    return folder, study


def export(trained: Trained, to: Path, **options: Any) -> Path:
    """Export the network of the study that was run in a folder; return where it is."""
    folder, study = trained
    export_model(study, study.arms[0].name, to, store=folder / "runs", **options)
    return to


def test_a_network_says_of_files_what_it_was_tested_with(
    trees: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the training data: the top-1 and top-2 accuracies over the test files are those of the ledger."""
    folder, study = trees
    monkeypatch.setenv("TOPK_DATA", str(tmp_path / "nothing"))
    name = study.arms[0].name
    rows = Ledger.open(Store.open(folder / "runs"), "s").rows("phase = 'confirm'")
    for seed in range(1, SEEDS + 1):
        result = export_model(study, name, tmp_path / "out", store=folder / "runs", seed=seed)
        row = next(row for row in rows if row["seed"] == seed)
        assert (result.seed, result.config.key) == (seed, row["key"])
        paths = sorted((folder / "data" / "trees" / "test").glob("*/*.png"))
        candidates = load_model(tmp_path / "out").predict(paths)
        for k in (1, 2):
            rows_of = zip(paths, candidates, strict=True)
            hits = [path.parent.name in {c.name for c in guesses[:k]} for path, guesses in rows_of]
            assert np.mean(hits) == pytest.approx(row[f"test.top{k}"], abs=1e-12)
        for guesses in candidates:
            assert [c.probability for c in guesses] == sorted((c.probability for c in guesses), reverse=True)


def test_a_folder_images_and_arrays_are_predicted_as_files_are(trees: Trained, tmp_path: Path) -> None:
    test = trees[0] / "data" / "trees" / "test"
    paths, model = sorted(test.glob("*/*.png")), load_model(export(trees, tmp_path / "out"))
    expected = model.predict(paths)
    images = [Image.open(path) for path in paths]
    for given in (test, images, list(map(np.asarray, images))):
        assert model.predict(given) == expected
    assert model.predict(images[0])[0][0].label == expected[0][0].label
    printed = json.loads(topk("predict", str(tmp_path / "out"), str(test), "-k", "1", "--json")[1])
    assert [image["image"] for image in printed] == list(map(str, paths))
    assert [image["candidates"][0]["label"] for image in printed] == [row[0].label for row in expected]


def test_what_cannot_be_read_is_named_after_all_others(trees: Trained, tmp_path: Path) -> None:
    export(trees, tmp_path / "out")
    shop = tmp_path / "shop"
    for path in ("a.png", "c.gif", "d.jp2", "@eaDir/a.png"):
        (shop / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (13, 9), (200, 10, 10)).save(shop / path)
    (shop / "b.jpg").write_bytes(b"no image")
    (shop / "e.jpg").write_bytes(b"\0\0\0\x18ftypheic" + bytes(99))
    (shop / "f.HEIC").touch()
    for options in ((), ("--format", "csv"), ("--json",)):
        code, out, err = topk(
            "predict", str(tmp_path / "out"), str(shop), str(tmp_path / "gone.png"), *options
        )
        assert code == 1 and [name for name in "abcdef" if f"{name}." in out] == ["a", "c", "d"]
        lines = err.splitlines()
        assert "1 .heic, 1 in @eaDir, which a system left there: save photos of iPhones" in lines[0]
        assert "b.jpg cannot be read" in lines[1] and "e.jpg cannot be read: it is a HEIC photo" in lines[2]
        assert "gone.png" in lines[3] and lines[4].startswith("topk: 3 of 6 inputs cannot be read")
    card = (tmp_path / "out" / "README.md").read_text()
    how = "its shorter side has 9 pixels" if "image_files" in card else "just covers 8 × 8 pixels"
    assert f"{how}, and cropped to the 8 × 8 pixels in its middle" in card


def test_the_pages_lines_run(trees: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block, in_sets, service = re.findall(
        r"```python\n(.*?)```", (DOCS / "serving.md").read_text(), flags=re.DOTALL
    )
    export(trees, tmp_path / "winner")
    Image.new("RGB", (13, 9)).save(tmp_path / "letter.png")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(block.replace("model.predict", "guesses = model.predict"), names)  # noqa: S102 - our own page
    (guesses,) = names["guesses"]  # type: ignore[misc]
    assert {guess.name for guess in guesses} <= {"ash", "birch", "cedar"} and guesses
    pixels = torch.randint(256, (100, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    names["model"] = names["model"].calibrated(pixels, torch.arange(100) % 3)  # type: ignore[attr-defined]
    exec(in_sets.replace("model.predict", "one_set = model.predict"), names)  # noqa: S102 - our own page
    (one_set,) = names["one_set"]  # type: ignore[misc]
    assert {guess.name for guess in one_set} <= {"ash", "birch", "cedar"} and one_set
    exec(service, names)  # noqa: S102 - our own page
    status, answer = asyncio.run(posted(names["app"], (tmp_path / "letter.png").read_bytes()))
    assert (status, answer) == (200, [asdict(guess) for guess in guesses])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 9)
    for body in (b"no image", b"P6\n", (tmp_path / "letter.png").read_bytes()):
        status, answer = asyncio.run(posted(names["app"], body))
        assert status == 400 and "cannot be read" in answer["detail"]


async def posted(app: Any, body: bytes) -> tuple[int, Any]:
    """Return the status of a request to an ASGI application, and the JSON that it answers."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(part.get("body", b"") for part in sent))


def test_the_seed_that_validated_best_is_taken(tmp_path: Path) -> None:
    scores = {1: (0.5, 0.9), 2: (0.7, 0.6), 3: (0.6, 0.5)}  # on the validation split and on the test split

    def scored(record: TrialRecord) -> TrialRecord:
        validation, test = scores[record.trial.seed]
        names = record.validation
        return replace(record, validation=dict.fromkeys(names, validation), test=dict.fromkeys(names, test))

    study = replace(one(Regime("r", "digits"), "linear"), seeds=3)
    train_study(study, tmp_path / "runs", scored)
    assert export_model(study, study.arms[0].name, tmp_path / "out", store=tmp_path / "runs").seed == 2


def test_the_folder_says_what_it_holds(trees: Trained, tmp_path: Path) -> None:
    content = json.loads((export(trees, tmp_path) / "config.json").read_text())
    assert content["inputs"]["names"] == ["ash", "birch", "cedar"]
    assert content["inputs"]["shape"] == [3, 8, 8]
    rows = Ledger.open(Store.open(trees[0] / "runs"), "s").rows("phase = 'confirm'")
    mean = np.mean([row["test.top2"] for row in rows])
    card = (tmp_path / "README.md").read_text()
    assert mean == 1.0 and "n is the number of seeds" in card
    assert re.search(r"\| 100\.00% \[\d+\.\d\d%, 100\.00%\] \|", card)  # no interval reaches beyond 100 %
    assert "topk predict" in card and "importable" not in card


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("digits")
    study = one(Regime("r", "digits"), "linear")
    train_study(study, folder / "runs")
    return folder, study


def test_a_network_of_numbers_takes_files_of_numbers(digits: Trained, tmp_path: Path) -> None:
    data = load(digits[1].arms[0].regime)
    assert isinstance(data, Dataset)
    inputs = data.test.tensor[:3]
    for row, part in enumerate(inputs):
        np.save(tmp_path / f"{row}.npy", part.numpy())
    paths = [str(tmp_path / f"{row}.npy") for row in range(3)]
    model = load_model(export(digits, tmp_path / "out"))
    assert model.predict(paths, 4) == model.candidates(inputs, 4)
    assert model.predict(paths[0], 4) == model.candidates(inputs[:1], 4)
    with pytest.raises(UserError, match="scores must be finite, and those of input 70 are not"):
        model.predict(torch.cat([data.test.tensor[:70], torch.full_like(inputs, torch.nan)]))
    scores = model.scores(inputs)
    for guesses, row in zip(model.candidates(inputs, 2), scores, strict=True):
        best = row.topk(2).indices
        assert [c.label for c in guesses] == best.tolist()
        assert [c.probability for c in guesses] == pytest.approx(by_subsets(row)[best].tolist())
    content = json.loads(topk("predict", str(tmp_path / "out"), *paths, "--json")[1])
    assert [[c["label"] for c in image["candidates"]] for image in content] == scores.topk(2).indices.tolist()


def by_subsets(scores: Tensor) -> Tensor:
    """The probability of each class being in a pair, by listing all pairs."""
    chances = torch.zeros(len(scores), dtype=torch.float64)
    for pair in combinations(range(len(scores)), 2):
        chances[[*pair]] += scores[[*pair]].sum().double().exp()
    return 2 * chances / chances.sum()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"arm": "r/linear/cross_entrop"}, "arm: .* did you mean 'r/linear/cross_entropy'"),
        ({"seed": 7}, r"seed must be one of the confirmed seeds \[1, 2\]"),
        ({"to": "a folder of something else"}, "--to must be a new or empty folder"),
        ({"store": "nothing"}, "holds nothing of study 's'"),
    ],
)
def test_an_export_that_cannot_be_is_one_line(
    given: dict[str, Any], why: str, digits: Trained, tmp_path: Path
) -> None:
    folder, study = digits
    other = tmp_path / "a folder of something else"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')  # as Hugging Face's programs write
    (other / "model.safetensors").write_text("weights of years")
    paths = {"to": tmp_path / given.get("to", "out"), "store": folder / given.get("store", "runs")}
    with pytest.raises(UserError, match=why) as caught:
        export_model(study, given.get("arm", study.arms[0].name), **paths, seed=given.get("seed"))
    assert "\n" not in str(caught.value)
    assert (other / "model.safetensors").read_text() == "weights of years"


def test_a_folder_that_is_no_export_is_one_line(digits: Trained, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be a folder of `topk export --arm`"):
        load_model(tmp_path)
    with pytest.raises(UserError, match=r"k must be in \[1, 10\]"):
        load_model(export(digits, tmp_path)).candidates(torch.zeros(1, 1, 8, 8), 11)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"linear"', '"mlp"', 1))
    with pytest.raises(UserError, match="model mlp builds another network than was exported"):
        load_model(tmp_path)
    content = json.loads(config.read_text())
    config.write_text(json.dumps(content | {"model": content["model"] | {"options": {"hidden": -1}}}))
    with pytest.raises(
        UserError, match=rf"{re.escape(str(tmp_path))}.* must be .*: option hidden of model mlp"
    ):
        load_model(tmp_path)


@pytest.mark.slow
def test_onnx_computes_the_same_scores(trees: Trained, tmp_path: Path) -> None:
    """To float32's rounding in sums of some hundred terms, in another order."""
    import onnxruntime

    session = onnxruntime.InferenceSession(export(trees, tmp_path, onnx=True) / "model.onnx")
    inputs = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8)
    (result,) = session.run(None, {"inputs": inputs.numpy()})
    classes = session.get_modelmeta().custom_metadata_map["topk.classes"]
    assert json.loads(classes) == ["ash", "birch", "cedar"]
    np.testing.assert_allclose(result, load_model(tmp_path).scores(inputs).numpy(), rtol=1e-4, atol=1e-4)


def test_a_logged_network_takes_pixels_of_any_whole_type_and_nothing_else(
    trees: Trained, tmp_path: Path
) -> None:
    predictor, own = as_mlflow_loads_it(export(trees, tmp_path))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8))
    expected = own.scores(torch.from_numpy(pixels.astype(np.uint8))).numpy()
    for kind in (np.uint8, np.int64, np.uint64):
        np.testing.assert_array_equal(predictor.predict(pixels.astype(kind)), expected)
    for wrong, why in (
        *((np.full((1, 3, 8, 8), value), f"got .*{value}") for value in (256, -1)),
        (np.full((1, 3, 8, 8), 0.5), "got float64"),
        *((np.zeros(shape, dtype=int), r"of shape \(n, 3, 8, 8\)") for shape in ((1, 3, 8, 9), (0,))),
    ):
        with pytest.raises(UserError, match=why):
            predictor.predict(wrong)


def as_mlflow_loads_it(folder: Path) -> tuple[Predictor, Classifier]:
    return _load_pyfunc(str(folder / "model.safetensors")), load_model(folder)


def test_a_logged_network_of_numbers_takes_whole_ones_too(digits: Trained, tmp_path: Path) -> None:
    predictor, own = as_mlflow_loads_it(export(digits, tmp_path))
    whole = np.ones((2, 1, 8, 8), dtype=int)
    np.testing.assert_array_equal(predictor.predict(whole), own.scores(torch.ones(2, 1, 8, 8)).numpy())
    with pytest.raises(UserError, match="inputs must be numbers, got bool"):
        predictor.predict(whole > 0)
    with pytest.raises(UserError, match="must be finite, and those of input 1"):
        predictor.predict(np.where(np.arange(2)[:, None, None, None], np.nan, whole))


def test_a_full_disk_for_a_graph_is_bad_input(
    digits: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("topk_platform.serving.exporting.write_onnx", full)
    with pytest.raises(UserError, match=r"^--to '.*out' cannot be written: .*No space left on device"):
        export(digits, tmp_path / "out", onnx=True)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["inputs", "instances"])
def test_mlflows_server_answers_images_in_json(key: str, trees: Trained, tmp_path: Path) -> None:
    """By the function that it calls for each request; JSON's numbers are int64 there."""
    import mlflow
    from mlflow.pyfunc.scoring_server import invocations

    export(trees, tmp_path)
    flavor = {"loader_module": "topk_platform.serving.flavor", "data": "model.safetensors", "env": {}}
    (tmp_path / "MLmodel").write_text(json.dumps({"flavors": {"python_function": flavor}}))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8))
    model = mlflow.pyfunc.load_model(str(tmp_path))
    schema = model.metadata.get_input_schema()
    result = invocations(json.dumps({key: pixels.tolist()}), "application/json", model, schema)
    expected = load_model(tmp_path).scores(torch.from_numpy(pixels.astype(np.uint8))).numpy()
    assert result.status == 200
    np.testing.assert_allclose(json.loads(result.response)["predictions"], expected, rtol=1e-6)
