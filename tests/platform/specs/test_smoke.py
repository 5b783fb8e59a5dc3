"""What a smoke run makes of a study."""

from __future__ import annotations

from typing import Any

import pytest

from topk_platform import (
    Arm,
    Choice,
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
    study = Study("s", arms, topk=topk)
    options = study.smoke().arms[0].regime.options
    assert options == {"classes": classes}


def test_options_are_shrunk_and_others_kept() -> None:
    """A misspelt one stays as well, so that the smoke run tells."""
    given = {"size": 160, "validation": 50, "unreadable": "skip", "sise": 3}
    options = smoke_arm(arm(options=given), 8).regime.options
    small = {"size": 64, "resize": 72, "validation": 2, "classes": 8}
    assert options == {"unreadable": "skip", "sise": 3, **small}


def test_features_are_those_of_the_stand_ins_small_images() -> None:
    given = {"of": "imagenet", "backbone": "timm/resnet18", "pixels": 224}
    features = smoke_arm(arm("image_features", options=given, recipe=Recipe(90, batch_size=256)), 8)
    options = features.regime.options
    assert features.regime.dataset == "image_features" and features.recipe.batch_size == 16
    assert options["of"] == "topk_platform.testing.smoke_datasets:imagenet"
    assert (options["backbone"], options["pixels"], options["classes"]) == ("timm/resnet18", 32, 8)
    own = arm("image_features", options={"of": "image_folder", "folder": "birds"})
    assert smoke_arm(own, 8).regime == own.regime


@pytest.mark.parametrize(("architecture", "small"), [("resnet50", True), ("vit_b_16", False)])
def test_networks_of_one_size_get_it(architecture: str, small: bool) -> None:
    options = smoke_arm(arm(model=Model("torchvision", {"architecture": architecture})), 8).regime.options
    assert options.get("size") == (64 if small else None)


@pytest.mark.parametrize("dataset", ["imagenet", "image_files"])
def test_no_weights_are_needed(dataset: str) -> None:
    model = Model("torchvision", {"architecture": "resnet50", "weights": "IMAGENET1K_V1"})
    assert smoke_arm(arm(dataset, model=model), 8).model == Model("torchvision", {"architecture": "resnet50"})
    own = Model("my_lab:net", {"weights": "mine"})
    assert smoke_arm(arm(model=own), 8).model == own


def test_networks_by_their_depth_have_few_layers() -> None:
    model = Model("densenet", {"depth": 40, "grow": 3}, label="densenet40-40")
    small = smoke_arm(arm("cifar100", model=model), 8).model
    assert small == Model("densenet", {"depth": 7, "growth": 4, "grow": 3}, label="densenet40-40")
    assert smoke_arm(arm("digits", model=Model("mlp", {"depth": 3})), 8).model.options == {"depth": 3}


def test_batches_are_small_wherever_they_are_said() -> None:
    recipe = smoke_arm(arm(recipe=Recipe(90, batch_size=256)), 8).recipe
    assert recipe.batch_size == 16
    rate = {"learning_rate": Float(0.1, 1)}
    for sizes, small in ((Choice((128, 256)), Choice((8, 16))), (Int(32, 256), Int(8, 16))):
        loss = Loss("cross_entropy", rate | {"batch_size": sizes}, {"learning_rate": 0.1, "batch_size": 128})
        result = smoke_arm(arm(loss=loss), 8).loss
        assert (result.space["batch_size"], result.first["batch_size"]) == (small, 16)
        assert result.space["learning_rate"] == rate["learning_rate"]
    assert smoke_arm(arm(loss=Loss("ldam", fixed={"batch_size": 64})), 8).loss.fixed == {"batch_size": 16}


def test_two_trials_of_a_grid_are_drawn_and_other_samplers_still_fit() -> None:
    space = {"learning_rate": Float(0.1, 1), "batch_size": Int(32, 256)}
    loss = Loss("cross_entropy", space, {"learning_rate": 0.1, "batch_size": 128})
    other = OptunaSampler("NSGAIISampler")
    for sampler, small in ((Grid({"learning_rate": 5, "batch_size": (64,)}), Random()), (other, other)):
        study = Study("s", [arm(loss=loss, protocol=Protocol(sampler))], trials=20).smoke()
        check_sampler(study.arms[0], study.trials)
        assert study.arms[0].protocol.sampler == small


def test_metrics_of_groups_select_as_over_all_classes() -> None:
    """A stand-in has no class of more than 100 images."""
    before = arm(
        "plantnet300k", metric="many_top5", recipe=Recipe(90, keep=("few_top5", "macro_top5", "top1"))
    )
    after = smoke_arm(before, 8)
    assert (after.metric, after.recipe.keep) == ("macro_top5", ("macro_top5", "top1"))
    Study("s", [before]).smoke()  # is a study as well


@pytest.mark.parametrize(("searches", "trials", "seeds"), [(1, 2, 2), (2, 4, 2), (3, 6, 3)])
def test_each_search_has_as_many_trials_and_seeds(searches: int, trials: int, seeds: int) -> None:
    losses = [Loss(name, {"tau": Float(0.1, 1)}, {"tau": 1.0}) for name in ("a", "b")]
    arms = [arm(loss=loss, protocol=Protocol(searches=searches)) for loss in losses]
    small = Study("s", arms, trials=12, seeds=12).smoke()
    assert (small.trials, small.seeds) == (trials, seeds)


def test_every_dataset_that_can_be_downloaded_has_a_standin() -> None:
    from topk_platform.data.dataset_table import DATASETS, DOWNLOADS

    assert set(DOWNLOADS) <= set(STANDINS) <= set(DATASETS)
