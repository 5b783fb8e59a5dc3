"""How long a study takes, as `topk plan` foretells it, beside how long `topk run` then takes; on an idle machine.

python benchmarks/foretold.py letters_quick
python benchmarks/foretold.py digits --workers 2 --only 'balanced/*' --repeat 3 --trials 8

Each time in a store of its own, so that nothing of it has ended: first the plan, then the run, by the commands that a
user types. A plan is about trainings alone. The run's time is that from the start of its first training to the end of
its last, and that of the whole command, with what comes before and after: the interpreter, Ray, the tables. A plan
counts each trial in full, so the number of pruned trials is printed too, and the load of the machine before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

TOPK = [sys.executable, "-c", "from topk_platform.cli import main; main()"]


@dataclass(frozen=True)
class Compared:
    """One plan beside its run.

    Args:
        foretold: Seconds of trainings by the plan.
        trained: From the first training's start to the last one's end.
        command: Of the whole command.
        trials: That were trained.
        pruned: Of these.
        load: The machine's over the last minute, before.
    """

    foretold: float
    trained: float
    command: float
    trials: int
    pruned: int
    load: float

    def __str__(self) -> str:
        ratios = f"{self.foretold / self.trained:.2f}, foretold/command {self.foretold / self.command:.2f}"
        return (
            f"foretold {self.foretold:.1f} s, trained {self.trained:.1f} s, command {self.command:.1f} s; "
            f"foretold/trained {ratios}; {self.trials} trials, {self.pruned} pruned; load before {self.load:.1f}"
        )


def lines(arguments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Run one of the commands and yield what it writes, a line of JSON each."""
    done = subprocess.run([*TOPK, *arguments, "--json"], check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    text = done.stdout
    try:
        yield json.loads(text)
    except json.JSONDecodeError:
        yield from map(json.loads, text.splitlines())


def compared(arguments: Sequence[str]) -> Compared:
    """Return a plan beside its run, with these arguments for both."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as store:
        given = [*arguments, "--store", store]
        (plan,) = lines(["plan", *given])
        before = time.monotonic()
        events = list(lines(["run", *given]))
        command = time.monotonic() - before
    times = {
        kind: [datetime.fromisoformat(event["time"]) for event in events if event["event"] == kind]
        for kind in ("started", "ended")
    }
    ended = [event["status"] for event in events if event["event"] == "ended"]
    trained = (max(times["ended"]) - min(times["started"])).total_seconds()
    return Compared(plan["elapsed"], trained, command, len(ended), ended.count("pruned"), load)


def main() -> None:
    """Print a line for each plan and its run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study")
    parser.add_argument("--repeat", type=int, default=1, help="How often.")
    given, others = parser.parse_known_args()
    for _ in range(given.repeat):
        print(compared([given.study, *others]), flush=True)


if __name__ == "__main__":
    main()
