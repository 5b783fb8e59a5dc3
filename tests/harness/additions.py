"""Extensions of the kinds that are added most, as somebody who follows CONTRIBUTING's table writes them: edits by file.

An edit is an anchor and the text that goes before it; without an anchor the text goes to the end of the file, which may
be new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ADDITIONS", "Edit", "add"]

Edit = tuple[str, str]
"""The anchor, and the text."""

P = "platform/topk_platform/"


ADDITIONS: Mapping[str, Mapping[str, Sequence[Edit]]] = {
    "loss": {
        "losses/topk_losses/functional/entropy.py": [
            ('"generalized_cross_entropy"', '"doubled", '),
            (
                "",
                """
def doubled(scores, target, strength=1.0, **shared):
    return strength * generalized_cross_entropy(scores, target, 0.5, **shared)
""",
            ),
        ],
        "losses/topk_losses/modules/entropy.py": [
            ('"GeneralizedCrossEntropy"', '"Doubled", '),
            ("", "\nclass Doubled(GeneralizedCrossEntropy):\n    pass\n"),
        ],
        f"{P}training/loss_table.py": [
            ('    "focal": _own(tl.Focal),\n', '    "doubled": _own(tl.Doubled),\n')
        ],
        f"{P}loss_catalogue.py": [
            ('    "active_passive_loss": Loss', '    "doubled": LossEntry("Doubled loss"),\n')
        ],
    },
    "dataset": {
        f"{P}data/datasets/corners.py": [
            (
                "",
                """import torch
from topk_platform.data.datasets.tensors import from_tensors
def corners(per_class: int = 20):
    labels = torch.arange(4).repeat(per_class)
    noise = 0.1 * torch.randn(4 * per_class, 2, generator=torch.Generator().manual_seed(0))
    return from_tensors((torch.stack([labels % 2, labels // 2], 1) + noise, labels), validation=0.2, test=0.2)
""",
            )
        ],
        f"{P}data/dataset_table.py": [
            (
                "from topk_platform.data.datasets.characters",
                "from topk_platform.data.datasets.corners import corners\n",
            ),
            ('    "digits": digits,\n', '    "corners": corners,\n'),
        ],
        "docs/study.md": [("", "\n`corners` are points in the corners of a square.\n")],
    },
    "model": {
        f"{P}models/halved.py": [
            (
                "",
                """import math
from torch import nn
from topk_platform.models.heads import make_head
class _Half(nn.Module):
    def forward(self, inputs):
        return inputs.flatten(1)[:, ::2]
def halved(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    return nn.Sequential(_Half(), make_head(-(-math.prod(shape) // 2), classes, head))
""",
            )
        ],
        f"{P}models/__init__.py": [
            ("from topk_platform.models.vision", "from topk_platform.models.halved import halved\n"),
            ('    "linear": linear,\n', '    "halved": halved,\n'),
        ],
        "docs/study.md": [("", "\n`halved` sees every other input.\n")],
    },
    "sampler": {
        f"{P}specs/search_rules.py": [
            (
                "Sampler = Random",
                "@dataclass(frozen=True)\nclass BruteForce:\n    random: ClassVar[float] = 0\n",
            ),
            ("Random | Grid", "BruteForce | "),
            ('"TPE", "Grid"', '"BruteForce", '),
        ],
        f"{P}protocol/samplers.py": [
            (
                "            case OptunaSampler(reference, options):",
                "            case BruteForce():\n                return _referenced('BruteForceSampler', {}, seed)\n",
            ),
            ("TPE, Dimension", "BruteForce, "),
        ],
        "docs/searching.md": [("", "\n| `BruteForce()` | every value once | |\n")],
    },
    "table format": {
        f"{P}reports/counts.py": [
            ("", "def to_counts(table, metrics=()):\n    return f'{len(table.cells)} cells'\n")
        ],
        f"{P}reports/catalogue.py": [('    "latex": "result_tables', '    "counts": "counts:to_counts",\n')],
        "docs/report.md": [("", "\n`--format counts` writes the number of cells.\n")],
    },
}


def add(kind: str, root: Path) -> None:
    """Add the extension of a kind to a copy of the repository.

    Args:
        kind: A key of ``ADDITIONS``.
        root: The copy.
    """
    for name, edits in ADDITIONS[kind].items():
        file = root / name
        text = file.read_text() if file.exists() else ""
        for anchor, added in edits:
            assert not anchor or text.count(anchor) >= 1, f"{name} has no {anchor!r}"
            text = text.replace(anchor, f"{added}{anchor}", 1) if anchor else text + added
        file.write_text(text)
