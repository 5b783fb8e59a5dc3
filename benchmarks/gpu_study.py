"""A study of seconds on a GPU: the paths that no CPU has, with checks that need no second machine.

    python benchmarks/gpu_study.py --device cuda    # each arm's first values, by the training engine alone
    cd benchmarks && topk run gpu_study:on_cuda     # the same arms with search, Ray and records

Of each arm the search's first trial and one confirmation are trained; of ensembles a whole one each. The loss has to
fall, and top-K accuracy on the test split to exceed what guessing gives by five standard errors. Where the recipe asks
for deterministic algorithms, a second run and one that goes on from a checkpoint have to give the same numbers and
weights bit for bit.
"""

from __future__ import annotations

import argparse
import math
import platform
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from topk_platform import (
    Arm,
    Augmentation,
    Float,
    LabelNoise,
    Loss,
    Model,
    Numerics,
    Protocol,
    Recipe,
    Regime,
    Study,
)
from topk_platform.data import load
from topk_platform.records.networks import StoreKeeper
from topk_platform.records.storage.store import Store
from topk_platform.specs import Inputs, Phase, Trial, TrialRecord
from topk_platform.training import finish, run_trials
from topk_platform.training.setup import dataset_of

DIGITS = Regime("noisy", "digits", (LabelNoise(0.2),))
MOVED = Augmentation(crop=4, flip=True, cutout=4)
REPEATING = Numerics(deterministic=True)
RATE = {"learning_rate": Float(0.01, 0.3, log=True)}
EPOCHS = 5
MEMBERS = 4
CUT = 30  # checkpoints, one a step, after which a run is left
CLASSES = 10  # in both regimes
K = 3


def on_cuda() -> Study:
    """The study on a GPU, two trials at once."""
    return _study("cuda")


def on_cpu() -> Study:
    """The same on the CPU."""
    return _study("cpu")


def _study(device: str) -> Study:
    arms = [*_small(), *_images(device)]
    return Study(
        f"gpu-{device}",
        arms,
        topk=(1, K),
        trials=2,
        seeds=1,
        device=device,
        gpus=0.5,
        show=("top1", f"top{K}"),
    )


def _loss(name: str, rate: float, **first: float) -> Loss:
    space = RATE | {parameter: Float(value / 10, value * 10, log=True) for parameter, value in first.items()}
    return Loss(name, space, {"learning_rate": rate, **first})


def _small() -> list[Arm]:
    """Kernels, plain torch and a stack of networks, bit for bit."""
    model, recipe = Model("mlp", {"hidden": 64}), Recipe(EPOCHS, numerics=REPEATING)
    losses = (
        _loss("cross_entropy", 0.1),
        _loss("smooth_topk_svm", 0.1, tau=1.0),
        _loss("noised_topk_hinge", 0.1, epsilon=0.2),
        _loss("topk_hinge", 0.03),
    )
    alone = [Arm(DIGITS, model, loss, K, recipe) for loss in losses]
    together = Protocol(ensemble=MEMBERS)
    stacked = Model("mlp", {"hidden": 64}, label="stack")
    return [*alone, *(Arm(DIGITS, stacked, loss, K, recipe, protocol=together) for loss in losses[1:3])]


def _images(device: str) -> list[Arm]:
    """Convolutions, in each way that a recipe can ask for; small ones on a CPU."""
    cuda = device == "cuda"
    half = Numerics(bfloat16=True, channels_last=True, tf32=True)
    dense = {"depth": 22, "growth": 12} if cuda else {"depth": 7, "growth": 4}
    ways = [
        (Model("convnet", {"width": 16 if cuda else 4}), _loss("smooth_topk_svm", 0.1, tau=1.0), REPEATING),
        (Model("densenet", dense), _loss("noised_topk_hinge", 0.05, epsilon=0.2), half),
    ]
    if cuda:
        ways.append((Model("resnet18_small"), _loss("smooth_topk_svm", 0.05, tau=1.0), half))
    recipe = Recipe(EPOCHS, 100 if cuda else 20, augmentation=MOVED)
    images = _pictures(200 if cuda else 40)
    return [Arm(images, model, loss, K, replace(recipe, numerics=how)) for model, loss, how in ways]


def _pictures(each: int) -> Regime:
    """Easy images, so many of each class to train with."""
    sizes = {"train": each, "validation": 20, "test": 50}
    options = {"classes": CLASSES, "superclasses": 5, "difficulty": 0.25, **sizes}
    return Regime("images", "synthetic_images", options=options)


@dataclass(frozen=True)
class Keeper(StoreKeeper):
    """Checkpoints in a folder, and the networks of confirmations in memory."""

    networks: dict[str, dict[str, Tensor]] = field(default_factory=dict)

    def save_model(self, trial: Trial, model: nn.Module, inputs: Inputs) -> str:  # noqa: ARG002 - the interface's
        """Keep a network's tensors."""
        self.networks[trial.key] = {name: value.cpu().clone() for name, value in model.state_dict().items()}
        return ""

    def save_ranks(
        self,
        trial: Trial,  # noqa: ARG002
        ranks: Tensor,  # noqa: ARG002
        images: str,  # noqa: ARG002
        cluster: Tensor | None = None,  # noqa: ARG002
        clusters: str = "",  # noqa: ARG002
    ) -> str:
        """Keep no ranks."""
        return ""

    def save_guesses(self, trial: Trial, guesses: Tensor, images: str) -> str:  # noqa: ARG002 - as above
        """Keep no guesses."""
        return ""


def block(study: Study, arm: Arm, phase: Phase) -> list[Trial]:
    """The trials with the first values that train together: one, or an ensemble's."""
    members = (
        tuple(range(arm.protocol.ensemble))
        if phase == "search"
        else tuple(range(1, arm.protocol.ensemble + 1))
    )
    return [
        Trial(
            study=study.name,
            arm_id=study.arm_id(arm),
            arm=arm,
            topk=study.topk,
            targets=study.targets,
            phase=phase,
            number=member if phase == "search" else 0,
            seed=0 if phase == "search" else member,
            root=study.seed,
            values=arm.loss.first,
            dataset_fingerprint=load(arm.regime).fingerprint,
            code_version="benchmark",
            together=members if len(members) > 1 else (),
            device=study.device,
        )
        for member in members
    ]


def trained(trials: Sequence[Trial], cut: int = 0) -> tuple[list[TrialRecord], dict[str, Any]]:
    """Records and networks; with ``cut``, of a run that was left after so many checkpoints and gone on with."""
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(Store.open(folder), seconds=0.0 if cut else math.inf)
        if cut:
            training = run_trials(trials, keeper)
            for _ in range(cut):
                next(training)
            training.close()
            if keeper.load(trials) is None:
                raise RuntimeError("no checkpoint was written")
        return finish(run_trials(trials, keeper)), keeper.networks


def same(
    one: tuple[list[TrialRecord], dict[str, Any]], other: tuple[list[TrialRecord], dict[str, Any]]
) -> bool:
    """Whether two runs gave the same numbers and the same weights."""
    numbers = [
        [(r.status, r.validation, r.test, [(e.train_loss, e.validation) for e in r.epochs]) for r in records]
        for records, _ in (one, other)
    ]
    weights = [
        torch.cat([v.flatten().double() for n in run[1].values() for v in n.values()]) for run in (one, other)
    ]
    return numbers[0] == numbers[1] and torch.equal(*weights)


def complaints(record: TrialRecord) -> list[str]:
    """What is wrong with a trial's record."""
    what = f"{record.trial.phase} {record.trial.number or record.trial.seed}"
    if record.status != "completed":
        return [f"{what} {record.status}: {record.reason}"]
    losses, chance = [epoch.train_loss or 0.0 for epoch in record.epochs], K / CLASSES
    problems = (
        [] if losses[-1] < losses[0] else [f"{what}: the loss went from {losses[0]:.4g} to {losses[-1]:.4g}"]
    )
    if record.test is None:
        return problems
    size = len(dataset_of(record.trial).test)
    least = chance + 5 * math.sqrt(chance * (1 - chance) / size)
    accuracy = record.test[f"top{K}"]
    return (
        problems
        if accuracy > least
        else [*problems, f"{what}: top-{K} accuracy {accuracy:.3f}, not above {least:.3f}"]
    )


def row(study: Study, arm: Arm) -> tuple[list[str], list[str]]:
    """An arm's cells and what is wrong with it."""
    began = time.perf_counter()
    searched, confirming = (block(study, arm, phase) for phase in ("search", "confirm"))
    records = finish(run_trials(searched))
    run = trained(confirming)
    seconds = time.perf_counter() - began
    records += run[0]
    wrong = [complaint for record in records for complaint in complaints(record)]
    cells = [arm.name, str(len(records)), f"{seconds:.1f}", *_numbers(run[0][0])]
    if not arm.recipe.numerics.deterministic or wrong:
        return [*cells, "", ""], wrong
    repeated, resumed = same(run, trained(confirming)), same(run, trained(confirming, CUT))
    wrong += [] if repeated else ["a second run gave other numbers"]
    wrong += [] if resumed else ["a run that went on from a checkpoint gave other numbers"]
    return [*cells, *("yes" if held else "**no**" for held in (repeated, resumed))], wrong


def _numbers(record: TrialRecord) -> list[str]:
    if record.status != "completed" or record.test is None:
        return [record.status, "", "", ""]
    first, last = record.epochs[0], record.epochs[-1]
    scores = [f"{record.validation[f'top{K}']:.3f}", f"{record.test[f'top{K}']:.3f}"]
    return [
        f"{first.train_loss:.4f} → {last.train_loss:.4f}",
        *scores,
        f"{1e3 * (last.step_seconds or 0):.2f}",
    ]


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", default="*", help="a glob over arms, regime/model/loss")
    return parser.parse_args()


def main() -> None:
    """Print a row for each arm, then what is wrong."""
    options = parse()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("benchmarks/gpu_study.py: no CUDA device; --device cpu does without")
    study = _study(options.device).only(options.only)
    name = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    columns = (
        "arm",
        "trials",
        "s",
        f"loss, {EPOCHS} epochs",
        f"top-{K}",
        "test",
        "ms a step",
        "repeats",
        "resumes",
    )
    print(f"torch {torch.__version__}, {name}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    wrong = []
    for arm in study.arms:
        try:
            cells, problems = row(study, arm)
            print(f"| {' | '.join(cells)} |", flush=True)
        except Exception:  # noqa: BLE001 - the other arms are to be seen too
            problems = [traceback.format_exc()]
        wrong += [f"{arm.name}: {complaint}" for complaint in problems]
    raise SystemExit("\n" + "\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
