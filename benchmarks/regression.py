"""Whether small trials still end as they did with the versions that their components have (``topk_platform.versions``).

    python benchmarks/regression.py                    # what `make regression` runs: CPU, and GPU if there is one
    python benchmarks/regression.py --only 'noise/*'   # some of the trials
    python benchmarks/regression.py --renew            # store results of new versions and of new trials
    python benchmarks/regression.py --renew --only 'noise/*'   # of some trials alone; the others' results stay

It names what moved, by how much, how much was allowed, and the component whose version is to be raised; exit code 1 if
anything did. It is red as well where a component has another version than the stored results, where no trial uses an
entry of the table of versions, and where stored results belong to no trial, which ``--renew`` takes out.

``--renew`` overwrites no result of an existing version: results that are meant to move need a raised version, and a
trial that is changed needs another name. Where another version of torch or Pillow moves results further than rounding
does, no component is to blame: delete the rows of these trials from ``regression.csv`` by hand, then ``--renew``.

Results are stored for the CPU in ``regression.csv``, and in ``regression_versions.csv`` the versions with which each
trial was measured. A value is what one thread gives with the compiled kernels, and its ``rounding`` is how far it lies
off at most where the same trial rounds otherwise: with two threads, with the losses in plain torch, with what torch and
its libraries do on a processor with AVX2 alone and on one without vector instructions, and with most of it together.
``--renew`` measures these. Of losses that draw noise plain torch draws other numbers than the compiled kernels: that is
no rounding and left out, and where Numba is not installed they are not compared.

A value may differ by ``FACTOR`` times its rounding, and by no less than a floor: of a loss ``UNITS`` units in the last
place of float32 for every step that led to it, of an accuracy two samples. A GPU sums in yet other orders, so both are
larger there. On an NVIDIA H200 a network whose loss grows moved by 61 times its rounding, and a loss with kinks, where
rounding decides on which side a sample lies, by ten units a step; all other values stayed within 30 times and one unit.
What a trial draws on its device, such as noise of a loss or an augmentation, a GPU draws in other numbers; such trials
are not compared there, and the report says how many these are. Where there is a GPU, it also computes the features of
images, which are not compared either. CUDA graphs are recorded on a GPU alone: on a CPU their trial shows that they
change nothing.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import torch
from regression_trials import Case, cases, measure

from topk_platform.data import DATASETS
from topk_platform.models import MODELS
from topk_platform.specs import CONDITIONS, Arm
from topk_platform.specs.recipe import OPTIMIZERS
from topk_platform.training.loss_table import LOSSES
from topk_platform.versions import KINDS, VERSIONS, components_of, differences

__all__ = ["Stored", "StoredTrial", "compare", "main", "to_raise"]

STORED = Path(__file__).with_name("regression.csv")
STORED_VERSIONS = Path(__file__).with_name("regression_versions.csv")
FACTOR = {"cpu": 10.0, "cuda": 100.0}
UNITS = {"cpu": 1, "cuda": 16}
STEPS = 64  # no value is that of more steps
SAMPLES = 100  # no split is smaller
ULP = 2.0**-23
VARIATIONS: tuple[tuple[int, str, str], ...] = (  # threads, backend, what torch may use of the processor
    (2, "auto", ""),
    (1, "torch", ""),
    (1, "auto", "avx2"),
    (1, "auto", "default"),
    (2, "torch", "default"),
)

OTHER_PROCESSOR = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}  # of convolutions and products


@dataclass(frozen=True)
class Stored:
    """A value as it was, and how far rounding alone moved it."""

    value: float
    rounding: float

    def allowed(self, quantity: str, device: str) -> float:
        """Return how far the value may move on a device."""
        floor = (
            UNITS[device] * STEPS * ULP * abs(self.value)
            if quantity.startswith("train_loss")
            else 2 / SAMPLES
        )
        return max(floor, FACTOR[device] * self.rounding)


@dataclass(frozen=True)
class StoredTrial:
    """The values of a trial by quantity, and the versions of its components with which they were measured."""

    versions: str
    values: Mapping[str, Stored]

    def is_of(self, arm: Arm) -> bool:
        """Return whether an arm's components have the versions of these values."""
        return self.versions == versions_text(arm)


Results = Mapping[str, Mapping[str, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or renew; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="of the trials' names")
    parser.add_argument(
        "--device", choices=tuple(FACTOR), action="append", help="by default all that there are"
    )
    parser.add_argument("--processes", type=int, default=2, help="how many train side by side on a CPU")
    parser.add_argument(
        "--renew", action="store_true", help="store results of new versions and of new trials"
    )
    parser.add_argument("--measure", metavar="DEVICE,THREADS,BACKEND", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.measure:
        print(json.dumps(_here(given.only, *given.measure.split(","))))
        return 0
    stored = _read()
    names = sorted({*stored, *_arms()})
    if unknown := [glob for glob in given.only if not any(fnmatchcase(name, glob) for name in names)]:
        raise SystemExit(f"--only must match the names of trials, such as clean/cross_entropy, got {unknown}")
    wanted = [name for name in names if any(fnmatchcase(name, glob) for glob in given.only)]
    if given.renew:
        return _renew(stored, _measured(wanted, "cpu", given.processes), given.processes)
    kept = {name: stored[name] for name in wanted if name in stored}
    devices = given.device or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return max([_report(kept, wanted, device, given.processes) for device in devices])


def _report(stored: Mapping[str, StoredTrial], wanted: Sequence[str], device: str, processes: int) -> int:
    result = _measured(wanted, device, processes)
    red = compare(stored, result, device)
    print(*red, sep="\n", end="\n" if red else "")
    left_out = len(_arms().keys() & set(wanted)) - len(result)
    more = f"; {left_out} draw other numbers here and are not compared" if left_out else ""
    print(f"{device}: {len(result)} trials, {'red' if red else 'all as stored'}{more}")
    return 1 if red else 0


def compare(stored: Mapping[str, StoredTrial], result: Results, device: str) -> list[str]:
    """Return a line for all that is red, and at the end which component's version is to be raised."""
    arms = _arms()
    used = {component for arm in arms.values() for component in components(arm)}
    lines = [f"{name}: no trial uses it, so nothing guards its version" for name in declared() - used]
    lines += [f"{name}: is stored, and is no longer among the trials" for name in stored.keys() - arms]
    lines += [f"{name}: not among the stored results; --renew stores them" for name in result.keys() - stored]
    other = Counter(
        difference
        for name in result.keys() & stored.keys()
        for difference in differences(stored[name].versions, versions_text(arms[name]))
    )
    lines += [f"{text}: not stored, {count} trials; --renew stores them" for text, count in other.items()]
    return sorted(lines) + _moved(stored, result, device)


def to_raise(moved: Iterable[str], unmoved: Iterable[str]) -> list[str]:
    """Return the components whose versions are to be raised, given the names of the trials that moved or did not.

    It is what all trials that moved share and no other trial has; if there is no such component, several, all of whose
    trials moved, if these explain all that moved; else the engine.
    """
    arms = _arms()
    innocent = {component for name in unmoved for component in components(arms[name])}
    suspects = [components(arms[name]).keys() - innocent for name in moved]
    if not innocent or not all(suspects):
        return ["engine"]
    if shared := set.intersection(*suspects):
        return [" or ".join(sorted(shared))]
    result = []
    while suspects:
        counts = Counter(component for suspect in suspects for component in sorted(suspect))
        result.append(counts.most_common(1)[0][0])
        suspects = [suspect for suspect in suspects if result[-1] not in suspect]
    return sorted(result)


def components(arm: Arm) -> dict[str, str]:
    """Return the components with a version that an arm's trials use; installed packages are none of these."""
    return {
        name: version
        for name, version in components_of(arm).items()
        if name == "engine" or name.partition(" ")[0] in KINDS
    }


def declared() -> set[str]:
    """Return all components that have a version: the entries of the catalogues, and what a recipe adds."""
    named: dict[str, Iterable[str]] = {
        "loss": LOSSES,
        "network": MODELS,
        "dataset": DATASETS,
        "condition": [condition.__name__ for condition in CONDITIONS],
        "recipe": [*{*OPTIMIZERS} - {"sgd"}, "augmentation", "average", "cuda_graphs"],
    }
    return {"engine", *(f"{kind} {name}" for kind, names in named.items() for name in names)}


def versions_text(arm: Arm) -> str:
    """Return :func:`components` as one text."""
    return ", ".join(f"{name} {version}" for name, version in components(arm).items())


def _arms() -> dict[str, Arm]:
    return {case.name: case.arm for case in cases()}


def _moved(stored: Mapping[str, StoredTrial], result: Results, device: str) -> list[str]:
    """Return what moved of the trials that are stored for their versions, and which version is to be raised."""
    changes = {
        name: list(_changes(name, stored[name].values, result[name], device))
        for name, arm in sorted(_arms().items())
        if name in result and name in stored and stored[name].is_of(arm)
    }
    if not any(changes.values()):
        return []
    named = to_raise(*([name for name in changes if bool(changes[name]) is moved] for moved in (True, False)))
    raised = (
        f"raise the version of {', of '.join(named)} in topk_platform/versions.py, if they are meant to move"
    )
    return [*(line for lines in changes.values() for line in lines), raised]


def _changes(
    name: str, stored: Mapping[str, Stored], result: Mapping[str, float], device: str
) -> Iterator[str]:
    for quantity in sorted(stored.keys() | result.keys()):
        if quantity not in stored or quantity not in result:
            yield f"{name}: {quantity} is {'new' if quantity in result else 'missing'}"
            continue
        was, now = stored[quantity], result[quantity]
        allowed = was.allowed(quantity, device)
        if not abs(now - was.value) <= allowed:  # NaN too
            yield (
                f"{name}: {quantity} was {was.value:.6g}, is {now:.6g}: moved by {now - was.value:+.2g}, "
                f"where {allowed:.2g} is allowed"
            )


def _measured(names: Sequence[str], device: str, processes: int) -> Results:
    """Return the values of trials, from several processes if they train on the CPU."""
    parts = [names[first::processes] for first in range(processes)] if device == "cpu" else [names]
    with ThreadPoolExecutor(processes) as pool:
        results = list(pool.map(partial(_in_a_process, device=device), filter(None, parts)))
    return {name: values for result in results for name, values in result.items()}


def _in_a_process(
    names: Sequence[str], device: str = "cpu", threads: int = 1, backend: str = "auto", capability: str = ""
) -> Results:
    """Return the trials' values as a process of its own finds them, for torch looks at the processor but once."""
    environment = {
        **os.environ,
        "OMP_WAIT_POLICY": "passive",  # threads that spin take the time of one another
    }
    environment.pop("TOPK_CACHE", None)  # features that another process kept have its rounding
    if capability:
        environment |= {"ATEN_CPU_CAPABILITY": capability, **OTHER_PROCESSOR}
    command = [sys.executable, __file__, "--measure", f"{device},{threads},{backend}", "--only", *names]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    result: dict[str, dict[str, float]] = json.loads(done.stdout)
    return result


def _here(names: Sequence[str], device: str, threads: str, backend: Any) -> Results:
    return {
        case.name: measure(case, backend, device, int(threads))
        for case in cases()
        if case.name in names and _comparable(case, device, backend)
    }


def _comparable(case: Case, device: str, backend: str) -> bool:
    """Return whether a trial draws the same numbers as the stored one, of the CPU and its compiled kernels."""
    compiled = backend == "auto" and importlib.util.find_spec("numba") is not None
    return not (
        (case.noised and not (device == "cpu" and compiled))
        or (case.random and device != "cpu")
        or (case.of_features and torch.cuda.is_available())
    )


def _renew(stored: Mapping[str, StoredTrial], result: Results, processes: int) -> int:
    """Store results of new versions and of new trials, unless there are others of an existing version."""
    arms = _arms()
    lowered = {
        f"{name}: its version must not be lowered, there are results of {version}"
        for trial in stored.values()
        for name, version in (part.rsplit(" ", 1) for part in trial.versions.split(", "))
        if VERSIONS.get(name, 1) < int(version)
    }
    if refused := sorted(lowered) + _moved(stored, result, "cpu"):
        print(*refused, "nothing is stored: results of an existing version are not overwritten", sep="\n")
        return 1
    new = {
        name: values
        for name, values in result.items()
        if name not in stored or not stored[name].is_of(arms[name])
    }
    kept = {name: trial for name, trial in stored.items() if name in arms}
    _write(
        {
            **kept,
            **{
                name: StoredTrial(versions_text(arms[name]), values)
                for name, values in _rounded(new, processes).items()
            },
        }
    )
    print(f"{len(new)} trials are stored, {len(stored) - len(kept)} are taken out")
    return 0


def _rounded(reference: Results, processes: int) -> dict[str, dict[str, Stored]]:
    """Return values with their roundings, as processes that round otherwise find them."""
    names = list(reference)
    with ThreadPoolExecutor(processes) as pool:
        others = list(
            pool.map(lambda variation: _in_a_process(names, "cpu", *variation), VARIATIONS if names else ())
        )

    def rounding(name: str, quantity: str) -> float:
        result = (other[name][quantity] for other in others if name in other)
        return max(abs(value - reference[name][quantity]) for value in result)

    return {
        name: {quantity: Stored(value, rounding(name, quantity)) for quantity, value in values.items()}
        for name, values in reference.items()
    }


def _read() -> dict[str, StoredTrial]:
    values: dict[str, dict[str, Stored]] = {}
    with STORED.open(newline="") as file:
        for row in csv.DictReader(file):
            stored = Stored(float(row["value"]), float(row["rounding"]))
            values.setdefault(row["trial"], {})[row["quantity"]] = stored
    with STORED_VERSIONS.open(newline="") as file:
        versions = {row["trial"]: row["versions"] for row in csv.DictReader(file)}
    return {name: StoredTrial(versions[name], values[name]) for name in values}


def _write(trials: Mapping[str, StoredTrial]) -> None:
    with STORED.open("w", newline="") as file, STORED_VERSIONS.open("w", newline="") as versions:
        writer, of_versions = (csv.writer(each, lineterminator="\n") for each in (file, versions))
        writer.writerow(("trial", "quantity", "value", "rounding"))
        of_versions.writerow(("trial", "versions"))
        for name, trial in sorted(trials.items()):
            of_versions.writerow((name, trial.versions))
            for quantity, stored in trial.values.items():
                writer.writerow((name, quantity, f"{stored.value:.9g}", f"{stored.rounding:.2g}"))


if __name__ == "__main__":
    sys.exit(main())
