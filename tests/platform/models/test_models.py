from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from topk_losses import CosineHead
from topk_platform import Model, UserError
from topk_platform.errors import MissingDataError
from topk_platform.models import MODELS, build_model, check_model

SHAPES = {"feature_head": (30,), "linear": (2,), "mlp": (1, 8, 8), "torchvision": (3, 64, 64)}


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("model", "classes", "expected"),
    [
        # Huang et al. 2017, Table 2: 1.0 M on CIFAR-10.
        (Model("densenet", {"growth": 12}), 10, 1_019_722),
        # Counted by the architecture's definition below.
        (Model("densenet", {"growth": 40}), 100, None),
        # torchvision's own count for ImageNet, and the CIFAR form's usual 11.2 M.
        (Model("torchvision", {"architecture": "resnet18"}), 1000, 11_689_512),
        (Model("torchvision", {"architecture": "resnet34"}), 1000, 21_797_672),
        (Model("torchvision", {"architecture": "resnet50"}), 1081, 23_508_032 + 2049 * 1081),
        (Model("torchvision", {"architecture": "densenet121"}), 1000, 7_978_856),
        (Model("resnet18_small"), 100, 11_220_132),
        # He et al. 2016, Table 6: 0.27 M, 269,722, to which two normalised projections add 576 + 2,176; 8 by hand.
        (Model("resnet_small", {"depth": 20}), 10, 272_474),
        (Model("resnet_small", {"depth": 8}), 100, 83_892),
        (Model("densenet121_small"), 100, 7_048_548),
    ],
)
def test_parameter_counts(model: Model, classes: int, expected: int | None) -> None:
    net = build_model(model, (3, 32, 32), classes, "linear")
    assert parameters(net) == (expected or count_densenet(40, 40, classes))


def count_densenet(depth: int, growth: int, classes: int) -> int:
    """Weights of 3×3 and 1×1 convolutions, two numbers a normalised channel, and the last layer."""
    total, channels = 3 * 16 * 9, 16
    for block in range(3):
        if block:
            total += 2 * channels + channels * channels
        for _ in range((depth - 4) // 3):
            total += 2 * channels + channels * growth * 9
            channels += growth
    return total + 2 * channels + (channels + 1) * classes


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_each_has_both_heads_and_learns(name: str, head: str) -> None:
    shape = SHAPES.get(name, (3, 32, 32))
    torch.manual_seed(0)
    net = build_model(Model(name), shape, 7, head)
    scores = net(torch.randn(2, *shape))
    assert scores.shape == (2, 7)
    heads = [module for module in net.modules() if isinstance(module, CosineHead)]
    assert len(heads) == (head == "cosine")
    if head == "cosine":
        assert scores.abs().max() <= 1 + 1e-5
    nn.functional.cross_entropy(scores, torch.tensor([0, 1])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_the_linear_one_has_no_bias() -> None:
    net = build_model(Model("linear"), (2,), 6, "linear")
    assert [tuple(p.shape) for p in net.parameters()] == [(6, 2)]


@pytest.mark.parametrize(
    ("model", "shape", "head", "named"),
    [
        (Model("densenet", {"depth": 41}), (3, 32, 32), "linear", "depth"),
        (Model("torchvision", {"architecture": "resnet19"}), (3, 64, 64), "linear", "'resnet19'"),
        (Model("torchvision", {"architecture": "squeezenet1_1"}), (3, 64, 64), "linear", "linear layer"),
        (Model("mlp"), (4,), "round", "head"),
        (Model("feature_head"), (3, 8, 8), "linear", "features"),
        (Model("feature_head", {"layers": -1}), (5,), "linear", "layers"),
    ],
)
def test_what_no_model_can_be_is_refused(model: Model, shape: tuple[int, ...], head: str, named: str) -> None:
    with pytest.raises((UserError, ValueError), match=named):
        build_model(model, shape, 10, head)


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Model("dense"), "'densenet'"),
        (Model("MLP"), "'mlp'"),
        (Model("mlp", {"classes": 3}), "'classes'"),
        (Model("mlp", {"hidden": 0}), "hidden"),
        (Model("mlp", {"hidden": 8.0}), "hidden"),
        (Model("mlp", {"depth": -1}), "depth"),
        (Model("convnet", {"blocks": True}), "blocks"),
        (Model("densenet", {"grow": 3}), "'growth'"),
    ],
)
def test_bad_models_are_refused_before_they_are_built(model: Model, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_model(model)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where torch looks for ResNet-18's weights, in a folder of its own."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    return tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"


PRETRAINED = Model("torchvision", {"architecture": "resnet18", "weights": "IMAGENET1K_V1"})


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_pretrained_weights_are_those_on_disk_but_for_the_head(weights: Path, head: str) -> None:
    from torchvision.models import resnet18

    torch.manual_seed(1)
    stored = resnet18()
    torch.save(stored.state_dict(), weights)
    check_model(PRETRAINED)
    net = build_model(PRETRAINED, (3, 64, 64), 7, head)
    body = {name: value for name, value in net.state_dict().items() if not name.startswith("fc.")}
    assert body.keys() == {name for name in stored.state_dict() if not name.startswith("fc.")}
    assert all(torch.equal(value, stored.state_dict()[name]) for name, value in body.items())
    assert net(torch.zeros(2, 3, 64, 64)).shape == (2, 7)


def test_weights_that_are_not_there_are_not_downloaded(weights: Path) -> None:
    for use in (check_model, lambda model: build_model(model, (3, 64, 64), 7, "linear")):
        with pytest.raises(MissingDataError, match=f"not on disk: get https://.* and put it at {weights}"):
            use(PRETRAINED)
    wrong = Model("torchvision", {"architecture": "resnet18", "weights": "IMAGENET1K_V7"})
    with pytest.raises(
        UserError, match=r"unknown weights: torchvision model resnet18 has no .*IMAGENET1K_V1"
    ):
        check_model(wrong)
    assert not list(weights.parent.iterdir())


@pytest.mark.slow
def test_torchvision_is_imported_where_it_is_used_only() -> None:
    code = "import sys, topk_platform.models; print('torchvision' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
