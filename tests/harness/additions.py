"""One extension of each kind, as somebody who follows CONTRIBUTING's table would write it: edits by file.

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
VERSIONS = f"{P}versions.py"


def versioned(component: str) -> list[Edit]:
    """Give a component a version."""
    return [("    # what a recipe adds\n", f'    "{component}": 1,\n')]


ADDITIONS: Mapping[str, Mapping[str, Sequence[Edit]]] = {
    "loss": {
        "losses/topk_losses/functional/generalized.py": [
            ('"generalized_cross_entropy"]', '"doubled", '),
            (
                "",
                """
def doubled(scores, target, strength=1.0, *, weight=None, ignore_index=-100, reduction="mean"):
    value = generalized_cross_entropy(
        scores, target, 0.5, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
    return strength * value

""",
            ),
        ],
        "losses/topk_losses/modules/generalized.py": [
            ('"GeneralizedCrossEntropy"]', '"Doubled", '),
            (
                "",
                """
class Doubled(GeneralizedCrossEntropy):
    pass

""",
            ),
        ],
        f"{P}training/loss_table.py": [
            (
                "LOSSES: dict",
                """def _doubled(strength: float = 1.0) -> nn.Module:
    return tl.Doubled(0.5)


""",
            ),
            ('    "focal": _focal,\n', '    "doubled": _doubled,\n'),
        ],
        f"{P}loss_catalogue.py": [
            ('    "active_passive_loss": Loss', '    "doubled": LossEntry("Doubled loss", GREEN, "D"),\n')
        ],
        VERSIONS: versioned("loss doubled"),
    },
    "dataset": {
        f"{P}data/datasets/corners.py": [
            (
                "",
                '''"""Points in the corners of a square."""

import torch

from topk_platform.data.dataset import Dataset
from topk_platform.data.datasets.own import from_tensors

__all__ = ["corners"]


def corners(per_class: int = 20) -> Dataset:
    """Return points near the four corners of a square, float32 ``(n, 2)``."""
    labels = torch.arange(4).repeat(per_class)
    centres = torch.stack([labels % 2, labels // 2], dim=1).float()
    noise = 0.1 * torch.randn(centres.shape, generator=torch.Generator().manual_seed(0))
    return from_tensors((centres + noise, labels), validation=0.2, test=0.2)
''',
            )
        ],
        f"{P}data/loading.py": [
            (
                "from topk_platform.data.datasets.digits",
                "from topk_platform.data.datasets.corners import corners\n",
            ),
            ('    "digits": digits,\n', '    "corners": corners,\n'),
            ('    "digits",\n', '    "corners",\n'),
        ],
        VERSIONS: versioned("dataset corners"),
        "docs/study.md": [("", "\n`corners` are points in the corners of a square.\n")],
    },
    "condition": {
        f"{P}specs/arms/conditions.py": [
            (
                "Noise = LabelNoise",
                '''@dataclass(frozen=True)
class Shifted:
    """Replace each training label, with this probability, by the next class."""

    axis: ClassVar[str] = "shifted labels, probability"
    neutral: ClassVar[float | None] = 0.0
    across_superclasses: ClassVar[bool] = True

    probability: Share

    def __post_init__(self) -> None:
        check_fields(self)


''',
            ),
            ("LabelNoise | PairFlip", "Shifted | "),
            ('    "TrainFraction",\n', '    "Shifted",\n'),
        ],
        f"{P}data/conditions.py": [
            (
                "_CONDITIONS: dict",
                """def _shifted(dataset: Dataset, condition: Shifted, generator: Generator) -> Dataset:
    labels = dataset.train.labels
    moved = torch.rand(len(labels), generator=generator) < condition.probability
    shifted = torch.where(moved, (labels + 1) % dataset.classes, labels)
    return dataset.with_train(dataset.train.relabelled(shifted))


""",
            ),
            ("    TrainFraction: _train_fraction,", "    Shifted: _shifted,\n"),
            ("    TrainFraction,\n)", "    Shifted,\n"),
        ],
        VERSIONS: versioned("condition Shifted"),
        "docs/study.md": [("", "\n`Shifted(p)` moves labels to the next class.\n")],
    },
    "model": {
        f"{P}models/halved.py": [
            (
                "",
                '''"""A linear map of half of the inputs."""

import math

from torch import Tensor, nn

from topk_platform.models.heads import make_head

__all__ = ["halved"]


class _Half(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1)[:, ::2]


def halved(shape: tuple[int, ...], classes: int, head: str = "linear") -> nn.Module:
    """Return a head over every other input."""
    return nn.Sequential(_Half(), make_head(-(-math.prod(shape) // 2), classes, head))
''',
            )
        ],
        f"{P}models/__init__.py": [
            ("from topk_platform.models.linear", "from topk_platform.models.halved import halved\n"),
            ('    "linear": linear,\n', '    "halved": halved,\n'),
            ('    "linear",\n', '    "halved",\n'),
        ],
        VERSIONS: versioned("network halved"),
        "docs/study.md": [("", "\n`halved` sees every other input.\n")],
    },
    "optimizer": {
        f"{P}training/steps/optim.py": [
            (
                '        case "sgd" | "heavy_ball":',
                """        case "slow":
            return _SGD(parameters, lr=rate / 10)
""",
            ),
        ],
        f"{P}specs/arms/recipe.py": [('"adamw")', '"slow", ')],
        VERSIONS: versioned("recipe slow"),
        "docs/recipes.md": [("", "\n`slow` is SGD at a tenth of the rate.\n")],
    },
    "sampler": {
        f"{P}specs/search/sampler.py": [
            (
                "Sampler = Random",
                '''@dataclass(frozen=True)
class BruteForce:
    """Every value once, in Optuna's order."""

    random: ClassVar[float] = 0


''',
            ),
            ("Random | Grid", "BruteForce | "),
            ('"TPE", "Grid"', '"BruteForce", '),
        ],
        f"{P}protocol/search/samplers.py": [
            (
                "            case OptunaSampler(reference, options):",
                "            case BruteForce():\n                return _referenced('BruteForceSampler', {}, seed)\n",
            ),
            ("TPE, Arm, ", "BruteForce, "),
        ],
        "docs/searching.md": [("", "\n| `BruteForce()` | every value once | |\n")],
    },
    "pruner": {
        f"{P}specs/search/pruner.py": [
            (
                "Pruner = NoPruning",
                '''@dataclass(frozen=True)
class AtLeast(Checked):
    """Stop a search trial whose metric is below a value after the first epoch."""

    rungs: ClassVar[tuple[float, ...]] = ()
    value: Share = 0.5


''',
            ),
            ("NoPruning | Quantile", "AtLeast | "),
            ('"NoPruning", "Quantile"', '"AtLeast", '),
        ],
        f"{P}protocol/search/pruning.py": [
            (
                "        case Quantile(",
                "        case AtLeast(value):\n            return ((1, value),)\n",
            ),
            ("NoPruning, Pruner", "AtLeast, "),
        ],
        "docs/searching.md": [("", "\n| `AtLeast(value)` | below a value after the first epoch |\n")],
    },
    "object store": {
        f"{P}records/storage/addresses.py": [
            ('    "gs": ObjectStore(', '    "memory": ObjectStore("it needs none"),\n')
        ],
        "docs/ledger.md": [("", "\n`memory://` keeps nothing.\n")],
    },
    "table format": {
        f"{P}reports/tables/counts.py": [
            (
                "",
                '''"""A table as the number of its cells."""

from collections.abc import Sequence

from topk_platform.results.table import Table

__all__ = ["to_counts"]


def to_counts(table: Table, metrics: Sequence[str] = (), *, transpose: bool = False) -> str:
    """Return how many cells a table has."""
    return f"{len(table.cells)} cells"
''',
            )
        ],
        f"{P}reports/catalogue.py": [
            ('    "latex": "tables.latex', '    "counts": "tables.counts:to_counts",\n')
        ],
        "docs/report.md": [("", "\n`--format counts` writes the number of cells.\n")],
    },
    "plot": {
        f"{P}reports/plots/seeds.py": [
            (
                "",
                '''"""How many seeds each cell has."""

from typing import TYPE_CHECKING

from topk_platform.reports.plots.plot_data import Plotted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["seeds"]


def seeds(data: Plotted) -> "Figure":
    """Draw the number of seeds of each cell."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([cell.value.n for cell in data.table.cells.values() if cell.value is not None])
    return figure
''',
            )
        ],
        f"{P}reports/catalogue.py": [
            (
                '    "levels": Plot(',
                '    "seeds": Plot("plots.seeds:seeds", "How many seeds each cell has."),\n',
            )
        ],
        "docs/report.md": [("", "\n| `seeds` | how many seeds each cell has |\n")],
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
