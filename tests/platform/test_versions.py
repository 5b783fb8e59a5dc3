"""What starts which arms anew: the table of `docs/protocol.md`, made by this module.

python tests/platform/test_versions.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from topk_platform import (
    EMA,
    Arm,
    Augmentation,
    Choice,
    Float,
    LabelNoise,
    LongTail,
    Loss,
    Model,
    Numerics,
    OptunaSampler,
    Protocol,
    Recipe,
    Regime,
    versions,
)
from topk_platform.data.dataset_table import DATASETS
from topk_platform.models import MODELS
from topk_platform.specs import CONDITIONS
from topk_platform.specs.recipe import OPTIMIZERS
from topk_platform.training.loss_table import LOSSES
from topk_platform.versions import KINDS, VERSIONS, components_of, differences, loaded_version, version_of

ROOT = Path(__file__).parents[2]

LAB = """
from topk_platform import Arm, Loss, Model, Recipe, Regime, Study

from helpers import scaled

MARGIN = 1.0


def hinge():
    \"\"\"A loss of one's own.\"\"\"
    from torch.nn import MultiMarginLoss

    return scaled(MultiMarginLoss(margin=MARGIN))


def another_loss():
    return None


def study():
    arm = Arm(Regime("digits", "digits"), Model("mlp"), Loss("lab:hinge"), 3, Recipe(epochs=2))
    return Study("mine", [arm], topk=(1, 3), trials=1, seeds=1)
"""
HELPERS = """
def scaled(loss):
    return lambda scores, labels: 2 * loss(scores, labels)


def plotted():
    return 1
"""
FILES = {"lab": LAB, "helpers": HELPERS}

PLAIN = Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 3, Recipe(1))
ARMS = {
    "cross-entropy": PLAIN,
    "smooth top-K SVM, label noise": Arm(
        Regime("r", "letters", (LabelNoise(0.2),)), Model("convnet"), Loss("smooth_topk_svm"), 3, Recipe(1)
    ),
    "LDAM, long tail": Arm(Regime("r", "digits", (LongTail(10),)), Model("mlp"), Loss("ldam"), 3, Recipe(1)),
    "a loss of one's own": replace(PLAIN, loss=Loss("lab:hinge")),
}
NONE, ALL = "", "*"
CROSS, SMOOTH, LDAM, OWN = ARMS


class Edit(NamedTuple):
    """An edit, and the arms that it starts anew.

    Args:
        what: What is edited, in words.
        anew: The arm, or all.
        raised: The component whose version is raised; empty if none is.
        file: The user's file that is edited, ``lab`` or ``helpers``; empty for none.
        old: What stands in it.
        new: What stands in it then.
    """

    what: str
    anew: str
    raised: str = ""
    file: str = ""
    old: str = ""
    new: str = ""


EDITS = [
    Edit("any of our own code: a kernel, a name, a message, a faster way to the same results", NONE),
    Edit("a new loss, network, dataset, condition or part of a recipe", NONE),
    Edit("the version of `engine`", ALL, "engine"),
    Edit("the version of `loss ldam`", LDAM, "loss ldam"),
    Edit("the version of `network convnet`", SMOOTH, "network convnet"),
    Edit("the version of `dataset letters`", SMOOTH, "dataset letters"),
    Edit("the version of `condition LongTail`", LDAM, "condition LongTail"),
    Edit("the version of `recipe adamw`", NONE, "recipe adamw"),
    Edit("a constant in your file that your loss uses", OWN, "", "lab", "MARGIN = 1.0", "MARGIN = 2.0"),
    Edit(
        "a function of another file of yours that your loss uses", OWN, "", "helpers", "2 * loss", "3 * loss"
    ),
    Edit("another function of these files", NONE, "", "helpers", "return 1", "return 2"),
    Edit("another loss in your file", NONE, "", "lab", "return None", "return 1"),
    Edit("`seeds=1` to `2`, or another study, in your file", NONE, "", "lab", "seeds=1", "seeds=2"),
    Edit(
        "a docstring, a comment or an annotation in your file",
        NONE,
        "",
        "lab",
        "A loss of one's own",
        "My loss",
    ),
    Edit(
        "`torch.set_default_dtype(...)` at the top of your file",
        OWN,
        "",
        "lab",
        "MARGIN = 1.0",
        "import torch\ntorch.set_default_dtype(torch.float64)\nMARGIN = 1.0",
    ),
]


def write(folder: Path, edit: Edit | None = None) -> None:
    for name, text in FILES.items():
        is_edited = edit is not None and edit.file == name
        (folder / f"{name}.py").write_text(text.replace(edit.old, edit.new) if edit and is_edited else text)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("lab", "helpers"):  # another test may have imported a module of this name
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def raised(*components: str) -> Mapping[str, int]:
    return {**VERSIONS, **{name: VERSIONS.get(name, 1) + 1 for name in components if name}}


@pytest.mark.parametrize("edit", EDITS[2:], ids=lambda edit: edit.what)
def test_an_edit_starts_those_arms_anew_that_it_concerns(
    edit: Edit, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert edit.raised or (edit.old and edit.old in FILES[edit.file])
    before = {name: version_of(arm) for name, arm in ARMS.items()}
    monkeypatch.setattr(versions, "VERSIONS", raised(edit.raised))
    write(lab, edit)
    anew = [name for name, arm in ARMS.items() if version_of(arm) != before[name]]
    assert anew == (list(ARMS) if edit.anew == ALL else [edit.anew] * bool(edit.anew))


def test_our_own_code_is_in_no_version(lab: Path) -> None:
    """The text has numbers of the table, and digests of the user's files alone."""
    for name, arm in ARMS.items():
        components = components_of(arm)
        ours = {n for n in components if n == "engine" or n.partition(" ")[0] in KINDS}
        assert all(components[n] == str(VERSIONS.get(n, 1)) for n in ours)
        assert components.keys() - ours == ({"lab:hinge"} if name == OWN else set())


def test_each_entry_of_the_table_is_a_component_whose_version_was_raised() -> None:
    entries = {"engine"}
    entries |= {f"loss {name}" for name in LOSSES} | {f"network {name}" for name in MODELS}
    entries |= {f"dataset {name}" for name in DATASETS}
    entries |= {f"condition {condition.__name__}" for condition in CONDITIONS}
    entries |= {f"recipe {name}" for name in {*OPTIMIZERS} - {"sgd"}}
    assert VERSIONS.keys() <= entries | {"recipe augmentation", "recipe average", "recipe cuda_graphs"}
    assert all(version > 1 for version in VERSIONS.values())


RECIPES = {
    "adam": Recipe(5, optimizer="adam"),
    "adamw": Recipe(5, optimizer="adamw"),
    "heavy_ball": Recipe(5, optimizer="heavy_ball"),
    "average": Recipe(5, average=EMA()),
    "augmentation": Recipe(5, augmentation=Augmentation(mix="mixup")),
    "cuda_graphs": Recipe(5, numerics=Numerics(cuda_graphs=True)),
}


def test_what_a_recipe_adds_counts_for_the_arms_that_have_it() -> None:
    for name, recipe in RECIPES.items():
        arm = replace(PLAIN, recipe=recipe)
        assert differences(version_of(PLAIN), version_of(arm)) == [f"recipe {name} 1: new"]
    either = Loss("cross_entropy", {"optimizer": Choice(("sgd", "adamw"))}, {"optimizer": "sgd"})
    assert version_of(replace(PLAIN, loss=either)) == version_of(replace(PLAIN, recipe=RECIPES["adamw"]))
    fixed = Loss("cross_entropy", fixed={"optimizer": "adam"})
    assert version_of(replace(PLAIN, loss=fixed)) == version_of(replace(PLAIN, recipe=RECIPES["adam"]))


def test_features_count_with_their_images_and_a_backbone_of_ones_own(lab: Path) -> None:
    features = Regime("r", "image_features", options={"of": "cifar100", "backbone": "lab:hinge"})
    components = components_of(replace(PLAIN, regime=features))
    assert {"dataset cifar100", "dataset image_features", "lab:hinge"} <= components.keys()


def test_a_sampler_of_ones_own_counts_where_an_arm_searches_with_it(lab: Path) -> None:
    protocol = Protocol(OptunaSampler("lab:hinge"))
    searched = Loss("cross_entropy", {"temperature": Float(0.1, 10)}, {"temperature": 1.0})
    assert "lab:hinge" in components_of(replace(PLAIN, loss=searched, protocol=protocol))
    assert "lab:hinge" not in components_of(replace(PLAIN, protocol=protocol))


def test_a_loss_of_ones_own_counts_with_our_losses_where_it_uses_them(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lab / "lab.py").write_text("from topk_losses import LDAM\ndef hinge(): return LDAM()\n")
    before = version_of(ARMS[OWN])
    kind, _, number = before.rpartition(" ")
    assert kind.endswith("package topk_losses")
    monkeypatch.setattr(versions, "VERSIONS", raised("loss focal"))
    assert differences(before, version_of(ARMS[OWN])) == [
        f"package topk_losses: version {number}, now {int(number) + 1}"
    ]


@pytest.fixture
def buy(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Yield a function that installs a version of the distribution ``things`` with the package ``bought``."""
    installed = lab / "lib" / "site-packages"
    monkeypatch.syspath_prepend(str(installed))

    def install(version: str) -> None:
        files = {"things.dist-info/METADATA": f"Name: things\nVersion: {version}\n"}
        files |= {"things.dist-info/top_level.txt": "bought\n", "bought/__init__.py": "def loss(): ...\n"}
        for name, text in files.items():
            (installed / name).parent.mkdir(parents=True, exist_ok=True)
            (installed / name).write_text(text)
        versions._distributions.cache_clear()

    yield install
    versions._distributions.cache_clear()


def test_an_installed_package_counts_by_its_version_where_a_definition_uses_it(
    lab: Path, buy: Callable[[str], None]
) -> None:
    buy("1.0")
    assert version_of(replace(PLAIN, loss=Loss("bought:loss"))).endswith("package things 1.0")
    (lab / "lab.py").write_text("import bought, json\ndef hinge(): return bought.loss()\n")
    before = version_of(ARMS[OWN])
    buy("2.0")
    assert differences(before, version_of(ARMS[OWN])) == ["package things: version 1.0, now 2.0"]


def test_a_process_keeps_the_version_of_what_it_imported(lab: Path) -> None:
    versions._loaded.cache_clear()
    before = loaded_version(ARMS[OWN])
    assert before == version_of(ARMS[OWN]) and "lab" in sys.modules
    write(lab, next(edit for edit in EDITS if edit.new == "MARGIN = 2.0"))
    assert loaded_version(ARMS[OWN]) == before != version_of(ARMS[OWN])


def test_the_version_is_taken_after_the_import(lab: Path) -> None:
    """A module that changes while it is imported, here by itself, has not the version that it began with."""
    (lab / "restless.py").write_text(
        "import pathlib\ndef loss(): return 1\npathlib.Path(__file__).write_text('def loss(): return 2')\n"
    )
    arm = replace(PLAIN, loss=Loss("restless:loss"))
    before = version_of(arm)
    assert loaded_version(arm) == version_of(arm) != before


@pytest.mark.parametrize("reference", ["half_written:loss", "not_there:loss", "torch.nn:Linear"])
def test_what_cannot_be_imported_or_is_no_file_of_the_users_has_a_version(lab: Path, reference: str) -> None:
    (lab / "half_written.py").write_text("import (\n")
    arm = replace(PLAIN, loss=Loss(reference))
    assert loaded_version(arm) == version_of(arm)


def table() -> str:
    """The table of the page."""
    lines = ["| a change of | starts anew |", "| --- | --- |"]
    named = {NONE: "nothing", ALL: "all arms"}
    return "\n".join([*lines, *(f"| {edit.what} | {named.get(edit.anew, edit.anew)} |" for edit in EDITS)])


def test_the_page_shows_the_table() -> None:
    assert table() in (ROOT / "docs" / "protocol.md").read_text()


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
