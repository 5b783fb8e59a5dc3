"""What is wrong with a user's data, model or loss is one line before anything starts."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_studies import small_study
from PIL import Image

from topk_platform import Choice, ConfusionNoise, Float, Int, Loss, Model, Regime, Study, UserError
from topk_platform.data import load
from topk_platform.errors import MissingDataError
from topk_platform.references import import_reference
from topk_platform.running.preflight.arm_checks import check_study
from topk_platform.specs import Dimension

LAB = """
import random, sys
import numpy as np, torch
from torch import nn
from topk_platform.data import Dataset, Split, from_tensors

PICTURES = torch.arange(60 * 3 * 8 * 8).reshape(60, 3, 8, 8).to(torch.uint8)

def data(kind="right"):
    inputs, labels = torch.randn(60, 5, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 6
    both = inputs, labels
    if kind == "unseeded": inputs = torch.randn(60, 5)
    if kind == "infinite": return from_tensors(both, both, (inputs.where(inputs < 2, float("inf")), labels))
    if kind == "whole": inputs = inputs.long()
    if kind == "double": return Dataset(*[Split(inputs.double(), labels)] * 3, classes=6)
    if kind == "channels last": inputs = PICTURES.permute(0, 2, 3, 1)
    if kind == "grey": inputs = PICTURES[:, 0]
    if kind == "shapes": return from_tensors(both, (inputs[:, :3], labels), both)
    if kind == "empty": return from_tensors(both, (inputs[:0], labels[:0]), both)
    if kind == "from 1": labels = labels + 1
    if kind == "gaps": labels = labels * 1000
    if kind == "raises": raise LookupError("no table")
    if kind == "exits": sys.exit("enough")
    if kind == "beyond": return Dataset(*[Split(inputs, labels)] * 3, classes=5)
    return from_tensors((inputs, labels))

def drawn(generator): return from_tensors((torch.randn(60, 5), torch.arange(60) % 6))

def net(shape, classes, head, kind="right"):
    if kind == "raises": raise LookupError("no layer")
    if kind == "narrow": return nn.Linear(shape[0], classes - 1)
    if kind == "frozen": return nn.Linear(shape[0], classes).requires_grad_(False)
    if kind == "function": return lambda x: x
    if kind == "probabilities": return nn.Sequential(nn.Linear(shape[0], classes), nn.Softmax(1))
    if kind == "nan": return nn.Sequential(nn.Linear(shape[0], classes), Times(float("nan")))
    return nn.Linear(shape[0], classes)

class Times(nn.Module):
    def __init__(self, factor): super().__init__(); self.factor = factor
    def forward(self, x): return x * self.factor

made, criterion = nn.Linear(5, 6), nn.CrossEntropyLoss()

def without_head(shape, classes): return made

def plain_loss(scores, labels): return nn.functional.cross_entropy(scores, labels)

class Bad(nn.Module):
    def __init__(self, kind, scale):
        super().__init__()
        if scale == 13: raise KeyError("unlucky")
        self.kind = kind
    def forward(self, scores, target):
        if self.kind == "raises": raise LookupError("no loss")
        each = nn.functional.cross_entropy(scores, target, reduction="none")
        mean = each.mean()
        wrong = {"vector": each, "detached": mean.detach(), "nan": mean * float("nan")}
        return wrong.get(self.kind, mean)

class Bare(nn.Module):
    def __init__(self): pass
    def forward(self, scores, target): return nn.functional.cross_entropy(scores, target)

class Messy(nn.Module):
    def forward(self, scores, target):
        torch.set_default_dtype(torch.float64); torch.set_num_threads(3); torch.set_grad_enabled(False)
        torch.manual_seed(1); random.seed(1); np.random.seed(1)
        with torch.enable_grad(): return nn.functional.cross_entropy(scores, target)

def loss(kind="right", scale=1.0): return Bad(kind, scale) if kind != "plain" else 3
def messy(): return Messy()
"""


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"lab_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(LAB)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def study(
    lab: str,
    topk: tuple[int, ...] = (1, 3),
    scale: Dimension | None = None,
    then: tuple[int, ...] = (),
    **names: str,
) -> Study:
    """A study of the lab's, by the kinds of its data, net and loss, or by other names for these three."""
    kinds = {"dataset": "data", "model": "net", "function": "loss"}
    used = {what: names.get(what, kind) for what, kind in kinds.items()}
    options = {
        what: {"kind": names.get(kind, "right")} if used[what] == kind else {} for what, kind in kinds.items()
    }
    dataset, model, function = (name if ":" in name else f"{lab}:{name}" for name in used.values())
    space = {} if scale is None else {"scale": scale}
    first = {name: dimension.ends[0] for name, dimension in space.items()}
    regimes = [Regime("r", dataset, options=options["dataset"])]
    loss = Loss(function, space, first, options["function"], then=[{"scale": value} for value in then])
    return small_study(loss, regimes=regimes, models=[Model(model, options["model"])], topk=topk)


def test_what_is_right_passes(lab: str) -> None:
    check_study(study(lab, scale=Float(1, 12)))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": "double"}, "data: inputs must be float32"),
    ({"data": "unseeded"}, "must return the same data in every process"),
    ({"dataset": "drawn"}, "drawn must return the same data for the same generator"),
    ({"data": "whole"}, "called with a int64 tensor .* raised RuntimeError"),
    ({"data": "infinite"}, r"in sample \d+ .* of the given test inputs"),
    ({"data": "channels last"}, r"take inputs.permute\(0, 3, 1, 2\)"),
    ({"data": "grey"}, "uint8 inputs must be images"),
    ({"data": "shapes"}, "the inputs of all splits must be of one"),
    ({"data": "empty"}, "the validation split must hold at least one sample"),
    ({"data": "from 1"}, "take labels - 1"),
    ({"data": "gaps"}, "labels must number the classes from 0"),
    ({"data": "beyond"}, r"train labels must lie in \[0, 5\), got 0 to 5"),
    ({"data": "raises"}, r"dataset lab.*:data raised LookupError: no table \(.*lab.*py:\d+ in data\)"),
    ({"data": "exits"}, "data raised SystemExit: enough"),
    ({"net": "raises"}, r"arm r/net/loss: model .* raised LookupError: no layer \(.*lab.*py:\d+ in net\)"),
    ({"net": "narrow"}, r"net \(lab.*py:\d+\) must give scores of shape \(4, 6\), got .* \(4, 5\)"),
    ({"net": "frozen"}, "must give scores that depend on its parameters"),
    ({"net": "function"}, "must return a torch.nn.Module, got a function"),
    ({"net": "probabilities"}, "got probabilities"),
    ({"net": "nan"}, "must give finite scores"),
    ({"model": "made"}, "made must be a function of shape, .* got a Linear"),
    ({"function": "criterion"}, "must be a function or a class .* got a CrossEntropyLoss"),
    ({"model": "without_head"}, r"got one of \['shape', 'classes'\]"),
    ({"model": "torch.nn:Linear"}, r"model torch.nn:Linear must be a function of shape, .* \['in_f"),
    ({"model": "torchvision.models:resnet18"}, r"take Model\('torchvision', {'architecture': 'resnet18'}\)"),
    ({"function": "plain_loss"}, r"its \['scores', 'labels'\] get no value"),
    ({"function": "torch:dot"}, "loss torch:dot must be a function with a signature"),
    ({"loss": "nan"}, "must give a finite loss, got nan"),
    ({"loss": "raises"}, r"arm r/net/loss: loss .* raised LookupError: no loss \(.*py:\d+ in forward\)"),
    ({"loss": "vector"}, r"got a float32 tensor of shape \(4,\)"),
    ({"loss": "detached"}, "without gradient"),
    ({"loss": "plain"}, "must return a torch.nn.Module, got a int"),
    ({"function": "Bare"}, r"must begin its __init__ with super\(\)"),
    ({"scale": Int(1, 13)}, "arm r/net/loss: loss loss raised KeyError: .* the space holds scale = 13"),
    ({"scale": Choice((1, 13, 2))}, "the space holds scale = 13"),
    ({"scale": Int(1, 20), "then": (2, 13)}, "the space holds scale = 13"),
    ({"topk": (1, 3, 50)}, r"the K of topk must be at most the number of classes"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_what_is_wrong_is_named_with_its_place(lab: str, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        check_study(study(lab, **wrong))
    assert "\n" not in str(caught.value)


NO_FILE = Regime("r", "digits", (ConfusionNoise("no.csv"),))
MISSPELT = Loss("cross_entropy", {"lr": Float(0.1, 1)}, {"lr": 0.1})
HALVED = Model("convnet", {"blocks": 6})  # halves 8 pixels six times


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (MISSPELT, "loss cross_entropy has no 'lr' .*learning_rate, .*temperature"),
        (NO_FILE, r"no\.csv, which a condition reads, does not exist"),
        (HALVED, r"r/convnet/cross_entropy: model convnet \(vision.py:\d+\), .*raised"),
    ],
)
def test_what_is_wrong_with_names_and_options_of_ours_is_named(
    changed: Regime | Model | Loss, message: str
) -> None:
    kinds = {Regime: Regime("r", "digits"), Model: Model("mlp"), Loss: Loss("cross_entropy")}
    regime, model, loss = (kinds | {type(changed): changed}).values()
    with pytest.raises(MissingDataError if changed is NO_FILE else UserError, match=message):
        check_study(small_study(loss, regimes=[regime], models=[model]))  # type: ignore[arg-type,list-item]


def test_a_module_that_runs_its_study_when_it_is_imported_is_refused(tmp_path: Path, lab: str) -> None:
    """Every worker would import it and run the study as well."""
    (tmp_path / f"{lab}_runs.py").write_text(
        "from topk_platform import Loss, Model, Recipe, Regime, Study, grid, run\n"
        "def data(): ...\n"
        f"arms = grid([Regime('r', '{lab}_runs:data')], [Model('mlp')], [Loss('focal')], k=3, recipe=Recipe(1))\n"
        f"run(Study('s', arms, topk=(3,)), store={str(tmp_path / 'runs')!r})\n"
    )
    with pytest.raises(UserError, match=r"must not be run by importing module .* under if __name__ =="):
        import_reference(f"{lab}_runs:arms")
    assert not (tmp_path / "runs").exists()


def test_the_script_that_is_run_is_no_module_of_the_workers() -> None:
    with pytest.raises(UserError, match="so that any process can import it, got '__main__:data'"):
        import_reference("__main__:data")


@pytest.mark.parametrize(
    ("name", "dimension", "message"),
    [
        ("tau", Float(-1, 1), "got -1.0; the space holds tau = -1.0"),
        ("learning_rate", Float(-0.5, 1), "got -0.5"),
        ("momentum", Float(0.5, 1), "got 1.0"),
        ("batch_size", Choice((64, 2.5)), "got 2.5"),
    ],
)
def test_a_space_is_tried_at_its_ends(name: str, dimension: Dimension, message: str) -> None:
    first = 64 if name == "batch_size" else 0.5
    loss = Loss("smooth_topk_svm", {name: dimension}, {name: first})
    with pytest.raises(UserError, match=f"arm r/mlp/smooth_topk_svm: .*{name} must be .*{message}"):
        check_study(small_study(loss))


def test_the_process_is_left_as_it_was(lab: str) -> None:
    def state() -> list[Any]:
        numbers = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        return [torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled(), numbers]

    check_study(study(lab))  # which reads the data
    before = state()
    check_study(study(lab, function="messy"))
    assert state() == before


def test_data_that_changed_since_an_earlier_check_in_this_process_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook, whose second run would take the results of other data for those of the present ones."""
    monkeypatch.setenv("TOPK_DATA", str(tmp_path))
    for row in range(40):
        (tmp_path / f"birds/{row % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), row, np.uint8)).save(tmp_path / f"birds/{row % 2}/{row}.png")
    regime = Regime("r", "image_folder", options={"folder": "birds", "size": 8})
    birds = small_study(regimes=[regime], models=["linear"], k=1)
    (before,), (again,) = (check_study(birds).values() for _ in range(2))
    (tmp_path / "birds/0/0.png").unlink()
    (after,) = check_study(birds).values()
    assert before.dataset_fingerprint == again.dataset_fingerprint != after.dataset_fingerprint


def test_of_an_arm_that_is_finished_only_the_data_are_looked_at(lab: str) -> None:
    """A loss that raises at its first step is told of, unless all trials have ended; with other data it is again."""
    wrong = study(lab, loss="raises")
    arm_id, fingerprint = wrong.arm_id(wrong.arms[0]), load(wrong.arms[0].regime).fingerprint
    (result,) = check_study(wrong, finished={arm_id: fingerprint}).values()
    assert result.dataset_fingerprint == fingerprint
    for finished in ({}, {arm_id: "other data"}):
        with pytest.raises(UserError, match="LookupError: no loss"):
            check_study(wrong, finished=finished)
