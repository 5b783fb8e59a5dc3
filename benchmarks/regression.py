"""Whether small trials still end as they did: every loss, kind of regime, network and part of a recipe.

    python benchmarks/regression.py                    # what `make regression` runs: CPU, and GPU if there is one
    python benchmarks/regression.py --only 'noise/*'   # some of the trials
    python benchmarks/regression.py --renew            # store this version's results in place of those that are stored
    python benchmarks/regression.py --renew --only 'noise/*'   # of some trials alone; the others' results stay

It names what moved, by how much, and how much was allowed; exit code 1 if anything did. Results are stored for the CPU
in ``regression.csv``: each value as one thread gives it with the compiled kernels, and its ``rounding``, how far it
lies off at most where the same trial rounds otherwise: with two threads, with the losses in plain torch, with torch's
code for processors without vector instructions, and with all three. Those four are measured anew by ``--renew``. Of
losses that draw noise plain torch draws other numbers than the compiled kernels: that is no rounding and left out, and
where Numba is not installed they are not compared.

A value may differ by ``FACTOR`` times its rounding, and by no less than a floor: of a loss ``UNITS`` units in the last
place of float32 for every step that led to it, of an accuracy two samples. A GPU sums in yet other orders, so both are
larger there. On an NVIDIA H200 a network whose loss grows moved by 61 times its rounding, and a loss with kinks, where
rounding decides on which side a sample lies, by ten units a step; all other values stayed within 30 times and one unit.
What a trial draws on its device, such as noise of a loss or an augmentation, a GPU draws in other numbers; such trials
are not compared there, and the report says how many these are.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

import torch
from regression_trials import Backend, Case, cases, measure

__all__ = ["Stored", "compare", "main"]

STORED = Path(__file__).with_name("regression.csv")
FACTOR = {"cpu": 10.0, "cuda": 100.0}
UNITS = {"cpu": 1, "cuda": 16}
STEPS = 64  # no value is that of more steps
SAMPLES = 100  # no split is smaller
ULP = 2.0**-23
VARIATIONS: tuple[tuple[int, str, str], ...] = (  # threads, backend, what torch may use of the processor
    (2, "auto", ""),
    (1, "torch", ""),
    (1, "auto", "default"),
    (2, "torch", "default"),
)


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


Results = Mapping[str, Mapping[str, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or renew; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["*"], metavar="GLOB", help="of the trials' names")
    parser.add_argument(
        "--device", choices=tuple(FACTOR), action="append", help="by default all that there are"
    )
    parser.add_argument(
        "--renew", action="store_true", help="store results in place of those that are stored"
    )
    parser.add_argument("--measure", metavar="THREADS,BACKEND", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.measure:
        threads, _, backend = given.measure.partition(",")
        print(json.dumps(_measured("cpu", given.only, int(threads), backend)))
        return 0
    _check_known(given.only)
    if given.renew:
        kept = {name: values for name, values in _read().items() if not _wanted(name, given.only)}
        _write(kept | _renewed(given.only))
        return 0
    devices = given.device or ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    return max(_report(device, given.only) for device in devices)


def _report(device: str, globs: Sequence[str]) -> int:
    stored = {name: values for name, values in _read().items() if _wanted(name, globs)}
    result = _measured(device, globs)
    moved = compare(stored, result, device)
    print(*moved, sep="\n", end="\n" if moved else "")
    left_out = sum(_wanted(case.name, globs) for case in cases(device)) - len(result)
    more = f"; {left_out} draw other numbers here and are not compared" if left_out else ""
    print(f"{device}: {len(result)} trials, {len(moved)} values moved{more}")
    return 1 if moved else 0


def compare(stored: Mapping[str, Mapping[str, Stored]], result: Results, device: str) -> list[str]:
    """Return a line for each value that moved further than rounding moves it, and for each trial that is not stored."""
    changes = [
        f"{name}: not among the stored results; --renew stores them" for name in result if name not in stored
    ]
    known = {case.name for case in cases(device)}  # those that are not compared here among them
    changes += [f"{name}: is stored, and is no longer among the trials" for name in stored.keys() - known]
    for name in result.keys() & stored.keys():
        changes += _moved(name, stored[name], result[name], device)
    return sorted(changes)


def _moved(
    name: str, stored: Mapping[str, Stored], result: Mapping[str, float], device: str
) -> Iterable[str]:
    for quantity in sorted(stored.keys() | result.keys()):
        if quantity not in stored or quantity not in result:
            yield f"{name}: {quantity} is {'new' if quantity in result else 'missing'}"
            continue
        was, now = stored[quantity], result[quantity]
        allowed = was.allowed(quantity, device)
        if not abs(now - was.value) <= allowed:  # NaN too
            yield (
                f"{name}: {quantity} was {was.value:.6g}, is {now:.6g}: moved by {now - was.value:+.2g}, "
                + (f"where {allowed:.2g} is allowed")
            )


def _check_known(globs: Sequence[str]) -> None:
    names = {*_read(), *(case.name for case in cases("cpu"))}
    if unknown := [glob for glob in globs if not any(fnmatchcase(name, glob) for name in names)]:
        raise SystemExit(f"--only must match the names of trials, such as clean/cross_entropy, got {unknown}")


def _wanted(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _measured(device: str, globs: Sequence[str], threads: int = 1, backend: str = "auto") -> Results:
    chosen = [case for case in cases(device, threads) if _wanted(case.name, globs)]
    return {
        case.name: measure(case, cast("Backend", backend))
        for case in chosen
        if _comparable(case, device, backend)
    }


def _comparable(case: Case, device: str, backend: str) -> bool:
    """Return whether a trial draws the same numbers as the stored one, of the CPU and its compiled kernels."""
    compiled = backend == "auto" and importlib.util.find_spec("numba") is not None
    return not (case.noised and not (device == "cpu" and compiled)) and not (case.random and device != "cpu")


def _renewed(globs: Sequence[str]) -> dict[str, dict[str, Stored]]:
    reference = _measured("cpu", globs)
    with ThreadPoolExecutor(2) as pool:
        others = list(pool.map(lambda variation: _in_a_process(variation, globs), VARIATIONS))

    def rounding(name: str, quantity: str) -> float:
        result = (other[name][quantity] for other in others if name in other)
        return max(abs(value - reference[name][quantity]) for value in result)

    return {
        name: {quantity: Stored(value, rounding(name, quantity)) for quantity, value in values.items()}
        for name, values in reference.items()
    }


def _in_a_process(variation: tuple[int, str, str], globs: Sequence[str]) -> Results:
    """Return the trials' values as a process of its own finds them, for torch looks at the processor but once."""
    threads, backend, capability = variation
    environment = {
        **os.environ,
        "OMP_WAIT_POLICY": "passive",
    }  # threads that spin take the time of one another
    environment |= {"ATEN_CPU_CAPABILITY": capability} if capability else {}
    command = [sys.executable, __file__, "--measure", f"{threads},{backend}", "--only", *globs]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    result: dict[str, dict[str, float]] = json.loads(done.stdout)
    return result


def _read() -> dict[str, dict[str, Stored]]:
    result: dict[str, dict[str, Stored]] = {}
    with STORED.open(newline="") as file:
        for row in csv.DictReader(file):
            stored = Stored(float(row["value"]), float(row["rounding"]))
            result.setdefault(row["trial"], {})[row["quantity"]] = stored
    return result


def _write(results: Mapping[str, Mapping[str, Stored]]) -> None:
    with STORED.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("trial", "quantity", "value", "rounding"))
        for name, values in sorted(results.items()):
            for quantity, stored in values.items():
                writer.writerow((name, quantity, f"{stored.value:.9g}", f"{stored.rounding:.2g}"))


if __name__ == "__main__":
    sys.exit(main())
