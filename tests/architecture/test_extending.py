"""CONTRIBUTING's list of a new loss's files is right: a loss that is added to a copy by it is there for everybody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# By file, what is appended to it.
ADDED = {
    "losses/topk_losses/functional/generalized.py": """
def doubled(scores, target, strength=1.0, *, weight=None, ignore_index=-100, reduction="mean"):
    value = generalized_cross_entropy(
        scores, target, 0.5, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    return strength * value

__all__ += ["doubled"]
""",
    "losses/topk_losses/modules/generalized.py": """
class Doubled(GeneralizedCrossEntropy):
    pass

__all__ += ["Doubled"]
""",
    "platform/topk_platform/training/loss_table.py": """
def _doubled(strength: float = 1.0) -> nn.Module:
    return tl.Doubled(0.5)

LOSSES["doubled"] = _doubled
""",
    "platform/topk_platform/loss_catalogue.py": """
LOSS_CATALOGUE["doubled"] = LossEntry("Doubled loss", GREEN, "D")
""",
}
SEEN = """
import torch, topk_losses
from topk_losses import functional
from topk_platform.reports.plots.style import looks
from topk_platform.specs import Loss
from topk_platform.training.losses import build_loss

assert "Doubled" in topk_losses.__all__ and "doubled" in functional.__all__
scores = torch.zeros(2, 3, requires_grad=True)
build_loss(Loss("doubled"), {}, 2, torch.tensor([5, 5, 5]))(scores, torch.tensor([0, 1])).backward()
assert scores.grad.abs().sum() > 0
look = looks([Loss("doubled")])["doubled"]
assert (look.colour, look.marker) == ("#009E73", "D")
"""


def test_the_list_of_a_new_losss_files_names_files_that_are_there() -> None:
    text = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("## The files of a new loss")[2]
        .partition("\n## ")[0]
    )
    steps = re.findall(r"^\d\. .*?(?=^\d\. |^Tests)", text, flags=re.MULTILINE | re.DOTALL)
    assert len(steps) == 8
    paths = [path for path in re.findall(r"`([\w/]+\.(?:py|md))`", text) if path == path.lower()]
    assert not [path for path in paths if not (ROOT / path).is_file()]
    for step, file in zip((2, 3, 5, 6), ADDED, strict=True):
        assert str(Path(file).parent) in steps[step - 1]


def test_a_loss_added_by_the_list_is_exported_built_and_drawn(tmp_path: Path) -> None:
    for part in ("losses", "platform"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.npz"))
    for file, text in ADDED.items():
        with (tmp_path / file).open("a") as stream:
            stream.write(text)
    paths = os.pathsep.join(str(tmp_path / part) for part in ("losses", "platform"))
    subprocess.run(
        [sys.executable, "-c", SEEN], env={**os.environ, "PYTHONPATH": paths}, check=True, cwd=tmp_path
    )
