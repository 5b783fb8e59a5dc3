"""Which edits of the sources start which arms anew: the table of `docs/protocol.md`, made by this module.

python tests/platform/sources/test_edits.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from topk_platform import Arm, LabelNoise, LongTail, Loss, Model, Recipe, Regime
from topk_platform.code_version import Code, Own
from topk_platform.sources import Source, find_source

ROOT = Path(__file__).parents[3]

LAB = """
from topk_platform import Arm, Loss, Model, Recipe, Regime, Study

MARGIN = 1.0


def hinge():
    \"\"\"A loss of one's own.\"\"\"
    from torch.nn import MultiMarginLoss

    return MultiMarginLoss(margin=MARGIN)


def study():
    arm = Arm(Regime("digits", "digits"), Model("mlp"), Loss("lab:hinge"), 3, Recipe(epochs=2))
    return Study("mine", [arm], topk=(1, 3), trials=1, seeds=1)
"""

ARMS = {
    "cross-entropy": Arm(Regime("r", "digits"), Model("mlp"), Loss("cross_entropy"), 3, Recipe(1)),
    "smooth top-K SVM, label noise": Arm(
        Regime("r", "letters", (LabelNoise(0.2),)), Model("convnet"), Loss("smooth_topk_svm"), 3, Recipe(1)
    ),
    "LDAM, long tail": Arm(Regime("r", "digits", (LongTail(10),)), Model("mlp"), Loss("ldam"), 3, Recipe(1)),
    "a loss of one's own": Arm(Regime("r", "digits"), Model("mlp"), Loss("lab:hinge"), 3, Recipe(1)),
}
NONE, ALL = "", "*"
CROSS, SMOOTH, LDAM, OWN = ARMS


class Edit(NamedTuple):
    """An edit of one file, and the arms that it starts anew."""

    what: str
    module: str
    old: str
    new: str
    anew: str


EDITS = [
    Edit(
        "a docstring of the training loop",
        "topk_platform.training.session",
        '"""Train to the end of the epoch and return',
        '"""Go on to the end of the epoch and return',
        NONE,
    ),
    Edit(
        "a comment in the losses' core",
        "topk_losses._core.reduction",
        "\n\n\ndef ",
        "\n\n\n# Another comment.\ndef ",
        NONE,
    ),
    Edit(
        "a formatter's changes",
        "topk_platform.training.steps.optim",
        "return _Adam(parameters, lr=recipe.learning_rate,",
        "return (_Adam)(parameters,\n    lr=(recipe.learning_rate),",
        NONE,
    ),
    Edit(
        "an annotation",
        "topk_platform.training.steps.optim",
        "def learning_rate(recipe: Recipe, step: int, steps: int) -> float:",
        "def learning_rate(recipe: object, step: 'int', steps) -> object:",
        NONE,
    ),
    Edit(
        "the message of an error",
        "topk_losses._core.checks",
        'raise ValueError(f"target must be a tensor, got',
        'raise ValueError(f"the target must be a torch.Tensor, got',
        NONE,
    ),
    Edit(
        "the message of a check",
        "topk_platform.data.dataset",
        'f"inputs and labels must be equal in number, got',
        'f"inputs and labels must be as many, got',
        NONE,
    ),
    Edit(
        "the rule of an error",
        "topk_losses._core.checks",
        "if not isinstance(target, Tensor):",
        "if not isinstance(target, (Tensor, list)):",
        ALL,
    ),
    Edit(
        "a kernel of the smooth top-K SVM",
        "topk_losses._smooth_svm.cpu_kernels",
        "SUMMED + k + 4",
        "SUMMED + k + 8",
        SMOOTH,
    ),
    Edit(
        "a constant of the smooth top-K SVM",
        "topk_losses._smooth_svm.plain",
        "CHUNK = 2**18",
        "CHUNK = 2**17",
        SMOOTH,
    ),
    Edit(
        "a helper of one family of losses",
        "topk_losses._rules.entropies",
        "largest = rows.detach().argmax(1, keepdim=True)",
        "largest = rows.detach().argmax(1, keepdim=True) + 0",
        LDAM,
    ),
    Edit(
        "a default value of LDAM",
        "topk_platform.training.loss_table",
        "scale: float = 30.0",
        "scale: float = 31.0",
        LDAM,
    ),
    Edit(
        "a new loss in the table",
        "topk_platform.training.loss_table",
        '    "autkc": _autkc,',
        '    "another": _focal,\n    "autkc": _autkc,',
        NONE,
    ),
    Edit(
        "another loss of the same file",
        "topk_losses._rules.entropies",
        "return -torch.expm1(gamma *",
        "return 1 - torch.exp(gamma *",
        NONE,
    ),
    Edit(
        "the optimiser's step",
        "topk_platform.training.steps.optim",
        "step = torch.no_grad()(_eager(torch.optim.SGD.step))",
        "step = torch.no_grad()(torch.optim.SGD.step)",
        ALL,
    ),
    Edit(
        "how label noise is drawn",
        "topk_platform.data.conditions",
        "replaced = torch.rand(len(labels)",
        "replaced = 1 - torch.rand(len(labels)",
        SMOOTH,
    ),
    Edit(
        "how a long tail is drawn",
        "topk_platform.data.conditions",
        "position = torch.arange(len(counts)",
        "position = 0 + torch.arange(len(counts)",
        LDAM,
    ),
    Edit(
        "a network",
        "topk_platform.models.convnet",
        "nn.Sequential(",
        "nn.Sequential(nn.Identity(), ",
        SMOOTH,
    ),
    Edit(
        "a metric that validation selects by",
        "topk_platform.metrics",
        "(tied + 1)).clamp(0, 1)",
        "(tied + 2)).clamp(0, 1)",
        ALL,
    ),
    Edit(
        "what runs when a module is imported",
        "topk_platform.training.steps.optim",
        "import torch\n",
        "import torch\n\ntorch.set_flush_denormal(True)\n",
        ALL,
    ),
    Edit(
        "a re-export more",
        "topk_platform.data",
        "from topk_platform.data.checking import check_source",
        "from topk_platform.data.checking import check_source\n"
        "from topk_platform.data.images.appearance import appearance",
        NONE,
    ),
    Edit(
        "a part of a recipe that nothing uses yet",
        "topk_platform.specs.arms.recipe",
        "    def __post_init__(self) -> None:",
        "    later: float = 0.0\n\n    def __post_init__(self) -> None:",
        NONE,
    ),
    Edit(
        "a report, the search, the records",
        "topk_platform.protocol.search.suggest",
        "import ",
        "import sys\nsys.setrecursionlimit(2000)\nimport ",
        NONE,
    ),
    Edit(
        "the name of a local variable",
        "topk_losses.margins",
        "    counts = _counts(class_counts)\n    return (max_margin * (counts / counts.amin())",
        "    found = _counts(class_counts)\n    return (max_margin * (found / found.amin())",
        LDAM,
    ),
    Edit("a constant in the study's file that the loss uses", "lab", "MARGIN = 1.0", "MARGIN = 2.0", OWN),
    Edit("`seeds=1` to `2` in the study's file", "lab", "seeds=1", "seeds=2", NONE),
    Edit("a docstring in the study's file", "lab", "A loss of one's own", "My own loss", NONE),
]


def versions(edit: Edit | None, folder: Path) -> dict[str, str]:
    """The arms' code versions after an edit of a copy of the file."""
    code = Code(Own(overlaid(edit, folder)))
    return {name: code.version(arm) for name, arm in ARMS.items()}


def overlaid(edit: Edit | None, folder: Path) -> Callable[[str], Source | None]:
    """What finds modules, the edited one in a folder."""
    (folder / "lab.py").write_text(LAB)
    original = find_source(edit.module) if edit is not None else None
    if edit is None or original is None:
        return find_source
    text = original.path.read_text()
    assert edit.old in text, edit
    changed = text.replace(edit.old, edit.new, 1)
    location = folder / "lab.py" if edit.module == "lab" else folder / "edited" / original.path.name
    location.parent.mkdir(exist_ok=True)
    location.write_text(changed)
    return lambda name: Source(name, location) if name == edit.module else find_source(name)


def anew(edit: Edit, folder: Path) -> list[str]:
    """The arms that an edit starts anew."""
    before, after = versions(None, folder), versions(edit, folder)
    return [name for name in ARMS if before[name] != after[name]]


@pytest.mark.parametrize("edit", EDITS, ids=[edit.what for edit in EDITS])
def test_an_edit_starts_those_arms_anew_that_it_concerns(
    edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    wanted = list(ARMS) if edit.anew == ALL else [edit.anew] * bool(edit.anew)
    assert anew(edit, tmp_path) == wanted


def table() -> str:
    """The table of the page."""
    lines = ["| an edit of | starts anew |", "| --- | --- |"]
    named = {NONE: "nothing", ALL: "all arms"}
    return "\n".join([*lines, *(f"| {edit.what} | {named.get(edit.anew, edit.anew)} |" for edit in EDITS)])


def test_the_page_shows_the_table() -> None:
    assert table() in (ROOT / "docs" / "protocol.md").read_text()


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
