"""Ten crops of each image, against a plain loop."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from small_trials import a_trial, completed
from torch import Tensor, nn
from torchvision.transforms.v2 import functional

from topk_platform import Augmentation, Model, Recipe, Regime
from topk_platform.data import Images
from topk_platform.metrics import Scorer
from topk_platform.testing.standins import write_imagenet
from topk_platform.training import scoring as module
from topk_platform.training.scoring import score_crops
from topk_platform.training.session import Session

REGIME = Regime("r", "imagenet", (), {"size": 16, "resize": 20, "classes": 5, "validation": 2})
GROUPS = (torch.zeros(5, dtype=torch.bool),) * 3


@pytest.fixture(autouse=True)
def _written(data_path: Path) -> None:
    write_imagenet(data_path, classes=5, train=6, test=7)


def crops(path: Path) -> list[Tensor]:
    """The ten crops of an image, as torchvision makes them; the mirrored ones are mirrors of the others."""
    with Image.open(path) as image:
        pixels = functional.pil_to_tensor(functional.resize(image.convert("RGB"), [20]))
    five = functional.five_crop(pixels, [16, 16])
    return [view for crop in five for view in (crop, crop.flip(2))]


def chances(scores: Tensor, k: int) -> Tensor:
    """The weight of the subsets of k classes with each class in them, of that of all subsets of k."""
    result = torch.zeros(len(scores), dtype=torch.float64)
    for chosen in combinations(range(len(scores)), k):
        result[list(chosen)] += scores.double()[list(chosen)].sum().exp()
    return result / (result.sum() / k)


@pytest.mark.parametrize("how", ["inclusion", "softmax"])
def test_what_is_ranked_is_the_mean_over_ten_crops(how: str) -> None:
    recipe = Recipe(epochs=1, test_crops=how)
    session = Session.prepare(a_trial(regime=REGIME, model=Model("linear"), recipe=recipe))
    torch.manual_seed(0)
    for weight in session.model.parameters():
        nn.init.normal_(weight, std=0.05)
    split, normalise = session.dataset.test, session.normalisation
    assert isinstance(split.inputs, Images) and normalise is not None
    scorer = Scorer((1, 2, 3), (0.9,), GROUPS)
    arguments = (session.model, split, normalise, recipe, "cpu", scorer)
    result = score_crops(*arguments).measures.tolist()
    of = {1: [], 2: [], 3: []}  # type: ignore[var-annotated]
    for row in split.inputs.rows.tolist():
        with torch.no_grad():
            scores = session.model(normalise(torch.stack(crops(split.inputs.files.path(row)))))
        for k, means in of.items():
            size = k if how == "inclusion" else 1
            means.append(torch.stack([chances(line, size) for line in scores]).mean(0))
    sizes = [1, 2, 3] if how == "inclusion" else [1]
    totals, finite = module._totals(*arguments[:1], split.inputs, *arguments[2:5], sizes)
    assert result[0] == finite == 1 and list(totals) == sizes
    for k, total in totals.items():  # of ten crops, in float32
        torch.testing.assert_close(total.double() / 10, torch.stack(of[k]), rtol=1e-5, atol=1e-6)
    named = scorer.named(result[1:])
    for k, means in of.items():
        scores = torch.stack(means)
        expected = Scorer((k,), (), GROUPS)(scores, split.labels).tolist()[:2]
        assert [named[f"top{k}"], named[f"macro_top{k}"]] == pytest.approx(expected)
    least = scorer.named(Scorer((1, 2, 3), (0.9,), GROUPS)(torch.stack(of[1]), split.labels).tolist())
    name = next(name for name in named if "top" not in name)
    assert named[name] == least[name]


def test_scores_that_are_not_finite_are_seen() -> None:
    recipe = Recipe(epochs=1, test_crops="softmax")
    session = Session.prepare(a_trial(regime=REGIME, model=Model("linear"), recipe=recipe))
    with torch.no_grad():
        next(session.model.parameters()).fill_(torch.nan)
    assert session.test(0, session.weights()).measures[0] == 0


def test_a_trial_is_tested_by_crops_and_validated_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same weights, other test results; the validation is that of the middle."""

    def run(**changes: Any) -> Any:
        recipe = Recipe(epochs=3, batch_size=8, augmentation=Augmentation(window=True), **changes)
        return completed(a_trial(regime=REGIME, model=Model("linear"), recipe=recipe))

    seen: list[tuple[float, float] | None] = []
    original = Images.in_order

    def noted(self: Images, corner: tuple[float, float] | None = None) -> Any:
        seen.append(corner)
        return original(self, corner)

    monkeypatch.setattr(Images, "in_order", noted)
    plain = run()
    assert seen == [None] * 4  # three validations and a test
    seen.clear()
    cropped = run(test_crops="inclusion")
    assert seen[:3] == [None] * 3 and len(seen) == 8 and len(set(seen[3:])) == 5
    assert plain.validation == cropped.validation and plain.test.keys() == cropped.test.keys()
