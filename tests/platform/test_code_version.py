from __future__ import annotations

import sys
from pathlib import Path

import pytest

from topk_platform import Arm, Loss, Model, Recipe, Regime
from topk_platform.code_version import code_version


def an_arm(loss: str) -> Arm:
    return Arm(Regime("r", "digits"), Model("mlp"), Loss(loss), 3, Recipe(1))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "some_lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "losses.py").write_text("from some_lab import tools\nfrom .more import x\nimport math\n")
    (package / "tools.py").write_text("a = 1\n")
    (package / "more.py").write_text("x = 1\n")
    (package / "studies.py").write_text("from some_lab import losses\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("some_lab")]:
        del sys.modules[name]
    return package


@pytest.mark.parametrize("name", ["losses.py", "tools.py", "more.py"])
def test_the_users_modules_count_and_what_they_import_of_their_own(lab: Path, name: str) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    assert before == code_version(arm)
    assert before != code_version(an_arm("cross_entropy"))
    (lab / name).write_text((lab / name).read_text() + "# changed\n")
    assert code_version(arm) != before


def test_the_file_that_defines_the_study_does_not_count(lab: Path) -> None:
    arm = an_arm("some_lab.losses:loss")
    before = code_version(arm)
    (lab / "studies.py").write_text("# one more arm\n")
    assert code_version(arm) == before
