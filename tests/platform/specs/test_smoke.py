"""What a smoke run makes of a study."""

from __future__ import annotations

from typing import Any

import pytest

from topk_platform import (
    Arm,
    Float,
    Grid,
    Int,
    Loss,
    Model,
    OptunaSampler,
    Protocol,
    Random,
    Recipe,
    Regime,
    Study,
)
from topk_platform.protocol.suggest import check_sampler
from topk_platform.specs import STANDINS, smoke_arm


def arm(dataset: str = "imagenet", **changes: Any) -> Arm:
    options = changes.pop("options", {})
    given = {"model": Model("convnet"), "loss": Loss("cross_entropy"), "k": 5, "recipe": Recipe(epochs=90)}
    return Arm(**{"regime": Regime("r", dataset, options=options), **given, **changes})


@pytest.mark.parametrize("dataset", ["digits", "ring", "synthetic_images", "image_files", "my_lab:birds"])
def test_all_but_the_large_datasets_stay_as_they_are(dataset: str) -> None:
    before = arm(dataset, options={"size": 16}, recipe=Recipe(90, batch_size=256), metric="few_top5")
    after = smoke_arm(before, 8)
    assert (after.regime, after.loss, after.metric) == (before.regime, before.loss, before.metric)
    assert after.recipe == Recipe(2, batch_size=256)


@pytest.mark.parametrize(
    ("topk", "k", "classes"), [((1, 3), 3, 8), ((1, 5, 20), 5, 22), ((1,), 9, 11), ((1,), 99, 100)]
)
def test_a_standin_has_more_classes_than_any_k(topk: tuple[int, ...], k: int, classes: int) -> None:
    """But never more than the dataset, so that a K that is none of its is refused as it will be."""
    arms = [arm("cifar100", k=k, metric="top1"), arm("digits", model=Model("mlp"), k=2, metric="top1")]
    assert Study("s", arms, topk=topk).smoke().arms[0].regime.options == {"classes": classes}


SMALL = {"size": 64, "resize": 72, "validation": 2, "classes": 8}
FEATURES = {"of": "imagenet", "backbone": "timm/resnet18"}


@pytest.mark.parametrize(
    ("dataset", "given", "shrunk"),
    [  # a misspelt option stays as well, so that the smoke run tells
        (
            "imagenet",
            {"size": 160, "unreadable": "skip", "sise": 3},
            {"unreadable": "skip", "sise": 3, **SMALL},
        ),
        (
            "image_features",
            {**FEATURES, "pixels": 224},
            {**FEATURES, **SMALL, "of": "topk_platform.testing.smoke_datasets:imagenet", "pixels": 32},
        ),
        ("image_features", {"of": "image_folder", "folder": "b"}, {"of": "image_folder", "folder": "b"}),
    ],
)
def test_options_are_shrunk_and_others_kept(dataset: str, given: Any, shrunk: Any) -> None:
    assert smoke_arm(arm(dataset, options=given), 8).regime.options == shrunk


RESNET = {"architecture": "resnet50"}


@pytest.mark.parametrize(
    ("dataset", "before", "after"),
    [
        ("imagenet", Model("torchvision", {**RESNET, "weights": "V1"}), Model("torchvision", RESNET)),
        ("image_files", Model("torchvision", {**RESNET, "weights": "V1"}), Model("torchvision", RESNET)),
        ("imagenet", Model("my_lab:net", {"weights": "mine"}), Model("my_lab:net", {"weights": "mine"})),
        (
            "cifar100",
            Model("densenet", {"depth": 40, "grow": 3}, label="densenet40-40"),
            Model("densenet", {"depth": 7, "growth": 4, "grow": 3}, label="densenet40-40"),
        ),
        ("digits", Model("mlp", {"depth": 3}), Model("mlp", {"depth": 3})),
    ],
)
def test_networks_have_few_layers_and_need_no_weights(dataset: str, before: Model, after: Model) -> None:
    assert smoke_arm(arm(dataset, model=before), 8).model == after


def test_networks_that_take_one_size_get_it() -> None:
    transformer = Model("torchvision", {"architecture": "vit_b_16"})
    assert "size" not in smoke_arm(arm(model=transformer), 8).regime.options


RATE = {"learning_rate": Float(0.1, 1)}


def test_batches_of_a_stand_in_are_small() -> None:
    assert smoke_arm(arm(recipe=Recipe(90, batch_size=256)), 8).recipe.batch_size == 16


@pytest.mark.parametrize(
    ("sampler", "small"),
    [
        (Grid({"learning_rate": 5, "batch_size": (64,)}), Random()),
        (OptunaSampler("NSGAIISampler"), OptunaSampler("NSGAIISampler")),
    ],
)
def test_two_trials_of_a_grid_are_drawn_and_other_samplers_still_fit(sampler: Any, small: Any) -> None:
    space = RATE | {"batch_size": Int(32, 256)}
    loss = Loss("cross_entropy", space, {"learning_rate": 0.1, "batch_size": 128})
    study = Study("s", [arm(loss=loss, protocol=Protocol(sampler))], trials=20).smoke()
    check_sampler(study.arms[0], study.trials)
    assert study.arms[0].protocol.sampler == small


def test_metrics_of_groups_select_as_over_all_classes() -> None:
    """A stand-in has no class of more than 100 images."""
    recipe = Recipe(90, keep=("few_top5", "macro_top5", "top1"))
    (after,) = Study("s", [arm("plantnet300k", metric="many_top5", recipe=recipe)]).smoke().arms
    assert (after.metric, after.recipe.keep) == ("macro_top5", ("macro_top5", "top1"))


@pytest.mark.parametrize(("searches", "trials", "seeds"), [(1, 2, 2), (2, 4, 2), (3, 6, 3)])
def test_each_search_has_as_many_trials_and_seeds(searches: int, trials: int, seeds: int) -> None:
    loss = Loss("a", {"tau": Float(0.1, 1)}, {"tau": 1.0})
    small = Study("s", [arm(loss=loss, protocol=Protocol(searches=searches))], trials=12, seeds=12).smoke()
    assert (small.trials, small.seeds) == (trials, seeds)


def test_every_dataset_that_can_be_downloaded_has_a_standin() -> None:
    from topk_platform.data.dataset_table import DATASETS, DOWNLOADS

    assert set(DOWNLOADS) <= set(STANDINS) <= set(DATASETS)
