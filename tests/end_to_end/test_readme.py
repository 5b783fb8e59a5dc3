"""What the README tells a stranger to type works as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_lines_with_losses_run(readme: Callable[[str], list[str]]) -> None:
    """A loss in training, which backend computes it, and one of one's own under the contract, one after the other."""
    training, backends, own = (block for block in readme("python") if "topk_losses" in block)
    code = (
        "import torch\nmodel = torch.nn.Linear(4, 10)\nscores = torch.randn(8, 10)\n"
        f"images, labels = torch.randn(8, 4), torch.randint(10, (8,))\n{training}\n"
        f"assert model.weight.grad.abs().sum() > 0\n{backends}\n{own}\n"
        "TestBrier().test_gradient_is_the_derivative()"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    (said,) = re.findall(r"^# (smooth_topk_svm .*)$", backends, flags=re.MULTILINE)
    assert done.stdout.strip() == said


def test_every_command_and_loss_it_names_exists() -> None:
    from typer.main import get_command

    import topk_losses
    from topk_platform.cli import app

    text = (ROOT / "README.md").read_text()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {name for name in re.findall(r"topk ([a-z]+)", text) if name not in ("table",)} <= set(commands)
    table = text[text.index("| loss | module | function |") :].split("\n\n")[0]
    for name in re.findall(r"`(\w+)`", table):
        assert hasattr(topk_losses, name) or hasattr(topk_losses.functional, name), name
