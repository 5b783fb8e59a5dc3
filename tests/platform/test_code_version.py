"""Which edits of a user's modules count for an arm, and which of its own package's."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from topk_platform import Arm, Float, Loss, Model, OptunaSampler, PairFlip, Protocol, Recipe, Regime
from topk_platform.code_version import _SPECS, code_definitions, code_version, loaded_version, user_modules
from topk_platform.specs import CONDITIONS
from topk_platform.specs.trial import SPECS


def an_arm(loss: str) -> Arm:
    return Arm(Regime("r", "digits"), Model("mlp"), Loss(loss), 3, Recipe(1))


SOURCES = {
    "some_lab/__init__.py": "",
    "some_lab/losses.py": "from some_lab import tools\nfrom .more import x\nimport math, not_there\nimport helper\n"
    "def loss():\n    return tools.a, x, helper.part.y\n",
    "some_lab/tools.py": "a = 1\nunused = 1\n",
    "some_lab/more.py": "from . import deep\nx = deep.later\n",
    "some_lab/deep/__init__.py": "from ..aside import *\n",
    "some_lab/aside.py": "def later():\n    import topk_mine\n    return topk_mine.loss()\n",
    "some_lab/studies.py": "from some_lab import losses\n",
    "helper.py": "import some_space.inner.part as part\nfrom ...... import too_far\n",
    "some_space/inner/part.py": "import half_written\ny = 2\n",
    "half_written.py": "import (\n",
    "topk_mine.py": "def loss(): return 1\n",
    "unrelated.py": "import helper\n",
}
FOLLOWED = sorted(set(SOURCES) - {"some_lab/studies.py", "unrelated.py"})


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    forget_modules(tmp_path, monkeypatch)
    return tmp_path


def forget_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tops = {path.stem for path in folder.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        monkeypatch.delitem(sys.modules, name)


def change(path: Path) -> None:
    """Change what every definition in a file means."""
    path.write_text(path.read_text().replace("1", "3").replace("2", "4").replace("()\n", "() * 2\n"))


def test_every_module_that_is_imported_and_not_installed_is_followed(lab: Path) -> None:
    before = set(sys.modules)
    result = user_modules(an_arm("some_lab.losses:loss"))
    assert sorted(path.relative_to(lab).as_posix() for path in result.values()) == FOLLOWED
    assert not {
        name for name in set(sys.modules) - before if name.startswith(("some_", "helper", "topk_mine"))
    }


@pytest.mark.parametrize(
    "name", ["some_lab/tools.py", "some_lab/aside.py", "some_space/inner/part.py", "topk_mine.py"]
)
def test_definitions_count_through_whatever_imports_lead_to_them(lab: Path, name: str) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    assert before == code_version(arm)
    assert before != code_version(an_arm("cross_entropy"))
    change(lab / name)
    assert code_version(arm) != before


def test_a_file_that_cannot_be_parsed_counts_by_its_bytes(lab: Path) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    (lab / "half_written.py").write_text("import ((\n")
    assert code_version(arm) != before


def test_the_definitions_that_count_are_named(lab: Path) -> None:
    result = (
        code_definitions(an_arm("some_lab.losses:loss")).keys() - code_definitions(an_arm("focal")).keys()
    )
    assert sorted(result) == [
        *("half_written.<0>", "some_lab.aside.later", "some_lab.losses.loss", "some_lab.more.x"),
        *("some_lab.tools.a", "some_space.inner.part.y", "topk_mine.loss"),
    ]


@pytest.mark.parametrize(
    ("edit", "counts"),
    [
        ("STUDY = Study('s', arms(2), seeds=2)\n", False),
        ("RATE = 0.2\n", True),
        ("other = 5\n", False),
        ("import torch\ntorch.set_default_dtype(torch.float64)\n", True),
        ("import torch\n_ = torch.manual_seed(0)\n", True),
        ("TABLE['x'] = 1\n", True),
        ("@register\ndef act(): return 1\n", True),
        ("class More(Base): pass\n", True),
        ("class Less(Plain): pass\n", False),
        ("from functools import cache\n@cache\ndef other(): return 1\n", False),
        ("import setting\n", True),
        ("import calm\n", False),
        ("if __name__ == '__main__':\n    print(model())\n", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import setting\n", False),
    ],
)
def test_what_else_stands_in_a_models_file_counts_if_it_acts_on_import(
    lab: Path, edit: str, counts: bool
) -> None:
    (lab / "setting.py").write_text("import random\nrandom.seed(1)\n")
    (lab / "calm.py").write_text("import random\nHALF = 1 / 2\n")
    (lab / "mine.py").write_text(
        "from topk_platform import Study, Arm, Loss\n"
        "from topk_platform.specs import Recipe\n"
        "TABLE = {}\n"
        "def register(function):\n    TABLE[function.__name__] = function\n    return function\n"
        "class Base:\n    def __init_subclass__(cls): TABLE[cls] = 1\n"
        "class Plain: pass\n"
        "def arms(n):\n    return [Arm('r', 'm', Loss('focal'), 1, Recipe(e)) for e in range(n)]\n"
        "STUDY = Study('s', arms(2), seeds=1)\n"
        "RATE = 0.1\n"
        "def model():\n    return RATE\n"
    )
    arm = replace(an_arm("focal"), model=Model("mine:model"))
    before = code_version(arm)
    with (lab / "mine.py").open("a") as file:
        file.write(edit)
    assert (code_version(arm) != before) == counts


@pytest.mark.parametrize(
    "look_up",
    [
        "globals()['kernel_' + name]",
        "getattr(kernels, 'kernel_' + name)",
        "getattr(sys.modules[__name__], 'kernel_' + name)",
        "importlib.import_module('kernels').kernel_b",
        "importlib.import_module('ker' + 'nels').kernel_b",
    ],
)
def test_a_module_counts_whole_where_names_in_it_are_computed(lab: Path, look_up: str) -> None:
    """In the last case the module that looks it up does; what it finds is not seen."""
    for name in ("kernels", "mine"):
        (lab / f"{name}.py").write_text(
            "import importlib, sys\nimport kernels\n"
            f"def loss(name): return {look_up}\ndef kernel_a(): return 1\ndef kernel_b(): return 1\n"
        )
    arm = an_arm("mine:loss")
    before = code_version(arm)
    changed = "mine" if "globals" in look_up or "sys." in look_up or "+ 'nels'" in look_up else "kernels"
    change(lab / f"{changed}.py")
    assert code_version(arm) != before


def test_a_sampler_of_ones_own_counts_where_an_arm_searches_with_it(lab: Path) -> None:
    protocol, first = Protocol(OptunaSampler("topk_mine:loss")), {"temperature": 1.0}
    searched = Loss("cross_entropy", {"temperature": Float(0.1, 10)}, first)
    searching, fixed = (
        replace(an_arm("x"), loss=loss, protocol=protocol) for loss in (searched, Loss("focal"))
    )
    before = code_version(searching), code_version(fixed)
    change(lab / "topk_mine.py")
    assert code_version(searching) != before[0]
    assert code_version(fixed) == before[1]


def test_a_name_that_only_begins_like_ours_is_the_users(lab: Path) -> None:
    before = code_version(an_arm("topk_mine:loss"))
    change(lab / "topk_mine.py")
    assert code_version(an_arm("topk_mine:loss")) != before
    assert user_modules(an_arm("topk_losses.functional:focal")) == {}


def test_a_module_is_followed_though_the_standard_library_has_its_name(lab: Path) -> None:
    """The user's folder comes first on the path, so `this:loss` is the user's loss."""
    (lab / "this.py").write_text("def loss(): return 1\n")
    assert set(user_modules(an_arm("this:loss"))) == {"this"}
    before = code_version(an_arm("this:loss"))
    change(lab / "this.py")
    assert code_version(an_arm("this:loss")) != before


def test_an_installed_package_counts_whole_and_only_where_the_arm_refers_to_it(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lab / "lib" / "site-packages"
    (folder / "bought").mkdir(parents=True)
    (folder / "bought" / "__init__.py").write_text("def loss(): ...")
    (lab / "mine.py").write_text(
        "import bought, json, torch.nn\ndef loss(): return bought.loss(), torch.nn.Linear\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    assert set(user_modules(an_arm("mine:loss"))) == {"mine"}
    features = Regime("r", "image_features", options={"of": "mine:loss", "backbone": "bought:loss"})
    assert set(user_modules(replace(an_arm("focal"), regime=features))) == {"mine"}
    assert user_modules(an_arm("bought:loss")) == {}
    before = code_version(an_arm("bought:loss")), code_version(an_arm("mine:loss"))
    (folder / "bought" / "inside.py").write_text("")  # as another release has it, in another process
    sys.modules["topk_platform.code_version"]._bytes_of.cache_clear()  # type: ignore[attr-defined]
    sys.modules["topk_platform.code_version"]._installed_sources.cache_clear()  # type: ignore[attr-defined]
    assert code_version(an_arm("bought:loss")) != before[0]
    assert code_version(an_arm("mine:loss")) == before[1]


def test_which_library_a_name_is_from_counts(lab: Path) -> None:
    (lab / "mine.py").write_text("from torch import nn\ndef loss(): return nn.Linear\n")
    before = code_version(an_arm("mine:loss"))
    (lab / "mine.py").write_text("from another import nn\ndef loss(): return nn.Linear\n")
    assert code_version(an_arm("mine:loss")) != before


def test_where_a_definition_lies_does_not_count(
    lab: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    other = tmp_path_factory.mktemp("testing") / "elsewhere"
    shutil.copytree(lab, other)
    monkeypatch.setattr(sys, "path", [str(other), *(path for path in sys.path if path != str(lab))])
    assert all(path.is_relative_to(other) for path in user_modules(arm).values())
    assert code_version(arm) == before
    (other / "some_lab" / "moved.py").write_text((other / "some_lab" / "tools.py").read_text())
    (other / "some_lab" / "tools.py").write_text("from some_lab.moved import a\n")
    assert code_version(arm) == before


def test_a_process_keeps_the_version_of_what_it_imported(lab: Path) -> None:
    arm = an_arm("topk_mine:loss")
    before = loaded_version(arm)
    assert before == code_version(arm) and "topk_mine" in sys.modules
    change(lab / "topk_mine.py")
    assert loaded_version(arm) == before != code_version(arm)


def test_the_version_is_taken_after_the_import(lab: Path) -> None:
    """A module that changes while it is imported, here by itself, has not the version that it began with."""
    (lab / "restless.py").write_text(
        "import pathlib\ndef loss(): return 1\npathlib.Path(__file__).write_text('def loss(): return 2')\n"
    )
    before = code_version(an_arm("restless:loss"))
    assert loaded_version(an_arm("restless:loss")) == code_version(an_arm("restless:loss")) != before


def test_a_module_that_cannot_be_imported_has_a_version(lab: Path) -> None:
    assert loaded_version(an_arm("half_written:loss")) == code_version(an_arm("half_written:loss"))


def test_the_file_that_defines_the_study_does_not_count(lab: Path) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    (lab / "some_lab" / "studies.py").write_text("more = 1\n")
    assert code_version(arm) == before


# What a recipe adds counts for the arms that have it (tests/platform/sources/test_extensions.py).
ADDED = {"EMA"}


def test_all_that_a_trial_is_made_of_is_followed_but_what_chooses_its_values() -> None:
    searching = {"search", "sampler", "pruner", "space"}
    made = {spec for spec in SPECS if spec.__module__.rpartition(".")[2] not in searching}
    assert {spec.__name__ for spec in made - set(CONDITIONS)} - ADDED <= set(_SPECS)


def test_a_condition_counts_for_the_arms_that_have_it() -> None:
    noisy = replace(an_arm("cross_entropy"), regime=Regime("noisy", "digits", (PairFlip(0.5),)))
    added = code_definitions(noisy).keys() - code_definitions(an_arm("cross_entropy")).keys()
    assert {name.rpartition(".")[2] for name in added} >= {"PairFlip", "_pair_flip"}
