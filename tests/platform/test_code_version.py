from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from topk_platform import Arm, Float, Loss, Model, OptunaSampler, Protocol, Recipe, Regime
from topk_platform.code_version import code_version, loaded_version, user_modules


def an_arm(loss: str) -> Arm:
    return Arm(Regime("r", "digits"), Model("mlp"), Loss(loss), 3, Recipe(1))


SOURCES = {
    "some_lab/__init__.py": "",
    "some_lab/losses.py": "from some_lab import tools\nfrom .more import x\nimport math, not_there\nimport helper\n",
    "some_lab/tools.py": "a = 1\n",
    "some_lab/more.py": "from . import deep\nx = 1\n",
    "some_lab/deep/__init__.py": "from ..aside import *\n",
    "some_lab/aside.py": "def later():\n    import topk_mine\n",
    "some_lab/studies.py": "from some_lab import losses\n",
    "helper.py": "import some_space.inner.part\nfrom ...... import too_far\n",
    "some_space/inner/part.py": "import half_written\n",
    "half_written.py": "import (\n",
    "topk_mine.py": "def loss(): ...\n",
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
    path.write_text(path.read_text() + "# changed\n")


def test_every_module_that_is_imported_and_not_installed_is_followed(lab: Path) -> None:
    before = set(sys.modules)
    found = user_modules(an_arm("some_lab.losses:loss"))
    assert sorted(path.relative_to(lab).as_posix() for path in found.values()) == FOLLOWED
    assert not {
        name for name in set(sys.modules) - before if name.startswith(("some_", "helper", "topk_mine"))
    }


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_users_modules_count_and_all_that_they_import(lab: Path, name: str) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    assert before == code_version(arm)
    assert before != code_version(an_arm("cross_entropy"))
    change(lab / name)
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


def test_an_installed_package_counts_whole_and_only_where_the_arm_refers_to_it(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = lab / "lib" / "site-packages"
    (place / "bought").mkdir(parents=True)
    (place / "bought" / "__init__.py").write_text("")
    (lab / "mine.py").write_text("import bought, json, torch.nn\n")
    monkeypatch.syspath_prepend(str(place))
    assert set(user_modules(an_arm("mine:loss"))) == {"mine"}
    assert user_modules(an_arm("bought:loss")) == {}
    before = code_version(an_arm("bought:loss")), code_version(an_arm("mine:loss"))
    (place / "bought" / "inside.py").write_text("")  # as another release has it, in another process
    sys.modules["topk_platform.code_version"]._installed_sources.cache_clear()  # type: ignore[attr-defined]
    assert code_version(an_arm("bought:loss")) != before[0]
    assert code_version(an_arm("mine:loss")) == before[1]


def test_the_folder_that_the_modules_lie_in_does_not_count(
    lab: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    other = tmp_path_factory.mktemp("testing") / "elsewhere"
    shutil.copytree(lab, other)
    monkeypatch.setattr(sys, "path", [str(other), *(path for path in sys.path if path != str(lab))])
    assert all(path.is_relative_to(other) for path in user_modules(arm).values())
    assert code_version(arm) == before


def test_a_process_keeps_the_version_of_what_it_imported(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = an_arm("topk_mine:loss")
    before = loaded_version(arm)
    assert before == code_version(arm) and "topk_mine" in sys.modules
    change(lab / "topk_mine.py")
    assert loaded_version(arm) == before != code_version(arm)


def test_the_version_is_taken_after_the_import(lab: Path) -> None:
    """A module that changes while it is imported, here by itself, has not the version that it began with."""
    (lab / "restless.py").write_text("import pathlib\npathlib.Path(__file__).write_text('a = 1')\n")
    before = code_version(an_arm("restless:loss"))
    assert loaded_version(an_arm("restless:loss")) == code_version(an_arm("restless:loss")) != before


def test_a_module_that_cannot_be_imported_has_a_version(lab: Path) -> None:
    assert loaded_version(an_arm("half_written:loss")) == code_version(an_arm("half_written:loss"))


def test_the_file_that_defines_the_study_does_not_count(lab: Path) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    (lab / "some_lab" / "studies.py").write_text("# one more arm\n")
    assert code_version(arm) == before
