"""Which edits of a user's files count for a definition in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from topk_platform.user_code import Reached, files_of, reached

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


def write(folder: Path, sources: Mapping[str, str]) -> None:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, SOURCES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Return a function that says whether an edit of some files counts for ``edited_lab.main:loss``."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(sources: Mapping[str, str]) -> Reached:
        write(
            tmp_path / "edited_lab",
            {f"{name}.py": text for name, text in {"__init__": "", **sources}.items()},
        )
        return reached("edited_lab.main:loss")

    def edited(sources: Mapping[str, str], old: str, new: str) -> bool:
        assert any(old in text for text in sources.values()), old
        return written(sources) != written({name: text.replace(old, new) for name, text in sources.items()})

    return edited


def test_every_module_that_is_imported_and_not_installed_is_a_file_of_it(lab: Path) -> None:
    before = set(sys.modules)
    result = files_of(["some_lab.losses:loss"])
    assert sorted(path.relative_to(lab).as_posix() for path in result.values()) == FOLLOWED
    assert not {n for n in set(sys.modules) - before if n.startswith(("some_", "helper", "topk_mine"))}
    assert files_of(["topk_losses.functional:focal"]) == files_of(["not_there:loss"]) == {}


@pytest.mark.parametrize(
    ("name", "text", "is_counted"),
    [
        ("some_lab/tools.py", "a = 3\nunused = 1\n", True),
        ("some_lab/aside.py", "def later():\n    import topk_mine\n    return topk_mine.loss() + 1\n", True),
        ("some_space/inner/part.py", "import half_written\ny = 3\n", True),
        ("topk_mine.py", "def loss(): return 2\n", True),
        ("some_lab/__init__.py", "import random\nrandom.seed(1)\n", True),
        ("some_lab/tools.py", "a = 1\nunused = 2\nanother = 1\n", False),
        ("some_lab/studies.py", "from some_lab import losses\nmore = 1\n", False),
        ("some_lab/losses.py", SOURCES["some_lab/losses.py"] + "def another(): return tools.unused\n", False),
        ("unrelated.py", "import helper\nhelper.more = 1\n", False),
    ],
)
def test_definitions_count_through_the_imports_that_lead_to_them_and_no_others(
    lab: Path, name: str, text: str, is_counted: bool
) -> None:
    before = reached("some_lab.losses:loss")
    (lab / name).write_text(text)
    assert (reached("some_lab.losses:loss").digest != before.digest) == is_counted


def test_a_file_that_cannot_be_parsed_counts_by_its_bytes(lab: Path) -> None:
    before = reached("half_written:loss")
    (lab / "half_written.py").write_text("import ((\n")
    assert reached("half_written:loss") != before


def test_where_a_folder_lies_does_not_count(
    lab: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other = reached("some_lab.losses:loss"), tmp_path_factory.mktemp("elsewhere")
    write(other, SOURCES)
    monkeypatch.setattr(sys, "path", [str(other), *(path for path in sys.path if path != str(lab))])
    assert all(path.is_relative_to(other) for path in files_of(["some_lab.losses:loss"]).values())
    assert reached("some_lab.losses:loss") == before


def test_a_module_is_followed_though_the_standard_library_has_its_name(lab: Path) -> None:
    """The user's folder comes first on the path, so `this:loss` is the user's loss."""
    (lab / "this.py").write_text("def loss(): return 1\n")
    assert set(files_of(["this:loss"])) == {"this"}
    assert reached("this:loss").digest


MODELS = (
    "from topk_platform import Study, Arm, Loss\n"
    "TABLE = {}\n"
    "def register(function):\n    TABLE[function.__name__] = function\n    return function\n"
    "class Base:\n    def size(self): return TABLE\n"
    "def arms(n):\n    return [Arm('r', 'm', Loss('focal'), 1, e) for e in range(n)]\n"
    "STUDY = Study('s', arms(2), seeds=1)\n"
    "RATE = 0.1\n"
    "def loss():\n    return RATE, Base\n"
)


@pytest.mark.parametrize(
    ("edit", "is_counted"),
    [
        ("STUDY = Study('s', arms(2), seeds=2)\n", False),
        ("def another_study():\n    return Study('t', arms(3))\n", False),
        ("other = 5\n", False),
        ("import matplotlib.pyplot as plt\ndef draw(): plt.plot([1])\n", False),
        ("import edited_lab.calm\n", False),
        ("from functools import cache\n@cache\ndef other(): return 1\n", False),
        ("if __name__ == '__main__':\n    print(loss())\n", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import edited_lab.setting\n", False),
        ("other.attribute = 1\nother = 5\n", False),
        ("'''A text.'''\n", False),
        ("RATE = 0.2\n", True),
        ("RATE += 1\n", True),
        ("TABLE['x'] = 1\n", True),
        ("Base.kind = 1\n", True),
        ("import torch\ntorch.set_default_dtype(torch.float64)\n", True),
        ("import torch\ntorch.backends.cudnn.deterministic = True\n", True),
        ("@register\ndef act(): return 1\n", False),
        ("for x in range(3): TABLE[x] = x\n", True),
        ("import edited_lab.setting\n", True),
        ("from edited_lab.setting import *\n", True),
    ],
)
def test_what_else_stands_in_the_file_counts_if_it_is_no_definition(
    counts: Callable[..., bool], edit: str, is_counted: bool
) -> None:
    others = {"setting": "import random\nrandom.seed(1)\n", "calm": "HALF = 1 / 2\n"}
    assert counts({**others, "main": f"{MODELS}# here\n"}, "# here\n", edit) == is_counted


@pytest.mark.parametrize(
    "look_up",
    [
        "globals()['kernel_' + name]",
        "getattr(kernels, 'kernel_' + name)",
        "vars(sys.modules[__name__])['kernel_' + name]",
        "importlib.import_module(__name__).kernel_b",
        "operator.attrgetter('kernel_' + name)(kernels)",
    ],
)
def test_a_file_counts_whole_where_names_in_it_are_computed(
    counts: Callable[..., bool], look_up: str
) -> None:
    body = f"def loss(name): return {look_up}\n"
    kernels = "def kernel_a(): return 1\ndef kernel_b(): return 1\n"
    main = f"import importlib, operator, sys\nfrom edited_lab import kernels\n{body}"
    inside = "kernels" not in look_up
    sources = {"main": main + kernels * inside, "kernels": kernels}
    assert counts(sources, "return 1", "return 3")


FAST_OR_SLOW = "if FAST:\n    from edited_lab.fast import f\nelse:\n    from edited_lab.slow import f\n"
TRIED = "try:\n    from .fast import f\nexcept ImportError:\n    from .slow import f\n"
BRANCHES = {
    "top": f"FAST = True\n{FAST_OR_SLOW}def loss(): return f()\n",
    "late": "FAST = True\ndef loss():\n    if FAST:\n        from .fast import f\n    else:\n"
    "        from .slow import f\n    return f()\n",
    "tried": f"FAST = True\n{TRIED}def loss(): return f(FAST)\n",
    "star": "FAST = True\nfrom .fast import *\nfrom .slow import *\ndef loss(): return f(FAST)\n",
    "inside": "FAST = True\nclass Holder:\n    from .fast import f\n    from .slow import f as g\n"
    "def loss(): return Holder.f(FAST)\n",
}


@pytest.mark.parametrize("main", BRANCHES.values(), ids=BRANCHES)
@pytest.mark.parametrize(
    ("old", "new"), [("return 1", "return 3"), ("return 2", "return 3"), ("= True", "= 0")]
)
def test_what_is_imported_counts_however_it_is_imported(
    counts: Callable[..., bool], main: str, old: str, new: str
) -> None:
    fast_and_slow = {"fast": "def f(): return 1\n", "slow": "def f(): return 2\n"}
    assert counts({**fast_and_slow, "main": main}, old, new)


@pytest.mark.parametrize(
    "statement", ["LISTED += [kernel]\n", "LISTED.append(kernel)\n", "_ = 1\nLISTED[:] = [kernel]\n"]
)
def test_what_enters_itself_into_the_table_of_another_file_counts(
    counts: Callable[..., bool], statement: str
) -> None:
    sources = {
        "main": "import edited_lab.plugin\nfrom edited_lab.table import first\ndef loss(): return first()\n",
        "table": "LISTED = []\ndef first(): return LISTED[0]()\n",
        "plugin": f"from edited_lab.table import LISTED\ndef kernel(): return 1\n{statement}",
    }
    assert counts(sources, "return 1", "return 3")


PROGRAM = '''
"""A module."""
from dataclasses import dataclass
from typing import ClassVar

LIMIT = 1_000

@dataclass(frozen=True)
class Rule:
    """A rule."""
    k: int
    names: ClassVar[tuple] = ()
    tau: float = 1.0
    """Its temperature."""

    def at(self, epoch: int, *, warm=False) -> "Tensor":
        """Return it."""
        total: float = 0.0
        for step in range(epoch): total += step / self.tau
        return [total, 'a', (epoch > LIMIT)]

def loss(): return Rule
'''


@pytest.mark.parametrize(
    ("old", "new", "is_counted"),
    [
        ('"""A module."""', "", False),
        ('"""A rule."""', '"""Another text."""', False),
        ('"""Its temperature."""', "", False),
        ("1_000", "1000  # a comment", False),
        (' -> "Tensor"', "", False),
        ("epoch: int", "epoch", False),
        ("total: float = 0.0", "total = 0.0", False),
        ("k: int", "k: 'whole'", False),
        ("'a'", '"a"', False),
        ("(epoch > LIMIT)", "epoch >\\\n LIMIT", False),
        ("1_000", "1000.0", True),
        ("tau: float = 1.0", "tau: float = 2.0", True),
        ("    k: int\n", "", True),
        ("k: int", "k: ClassVar[int]", True),
        ("frozen=True", "frozen=False", True),
        ("epoch > LIMIT", "epoch >= LIMIT", True),
        ("warm=False", "warm=None", True),
        ("total += step", "total -= step", True),
    ],
)
def test_texts_annotations_and_layout_do_not_count(
    counts: Callable[..., bool], old: str, new: str, is_counted: bool
) -> None:
    assert counts({"main": PROGRAM}, old, new) == is_counted


@pytest.mark.parametrize(
    "source",
    [
        "def loss(): return {}\nloss.version = 3\n",
        "loss.version = 3\ndef loss(): return {}\n",
        "class loss:\n    version = 3\n    def call(self): return {}\n",
    ],
)
def test_a_version_of_its_own_overrules_the_code(lab: Path, source: str) -> None:
    versions = []
    for value in (1, 2):
        (lab / "versioned.py").write_text(source.format(value))
        versions.append(reached("versioned:loss"))
    assert versions == [Reached(3)] * 2
    (lab / "versioned.py").write_text(source.format(1).replace("3", "4"))
    assert reached("versioned:loss") == Reached(4)


def test_the_version_of_another_loss_does_not_count(counts: Callable[..., bool]) -> None:
    main = "def loss(): return 1\ndef other(): return 2\nother.version = 1\n"
    assert not counts({"main": main}, "version = 1", "version = 2")


def test_which_library_a_name_is_from_counts(counts: Callable[..., bool]) -> None:
    main = "from torch import nn\ndef loss(): return nn.Linear\n"
    assert counts({"main": main}, "from torch", "from another")


def test_packages_outside_the_users_files_are_named_where_a_definition_uses_them(lab: Path) -> None:
    (lab / "mine.py").write_text(
        "import json, topk_losses, torch.nn\ndef loss(): return topk_losses.LDAM, torch.nn.Linear\n"
        "def other(): return json\n"
    )
    assert reached("mine:loss").packages == {"topk_losses", "torch"}
    assert reached("mine:other").packages == {"json"}
    assert reached("torch.nn:Linear") == Reached(packages=frozenset({"torch"}))
