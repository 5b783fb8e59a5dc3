"""The options of a run: for ``topk_platform.run``, and for the command ``topk run``, which is made from them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from topk_platform.errors import UserError, masked, unknown_name
from topk_platform.running.cluster.reaching import host_and_port
from topk_platform.specs import Study
from topk_platform.specs.checks import check_not_blank
from topk_platform.specs.fields import Checked, Count, NonNegative, Positive

__all__ = ["HEADINGS", "RunOptions", "help_of"]

HEADINGS = {
    "Where things are": (
        *("store", "data", "download", "mlflow", "tensorboard", "wandb"),
        *("address", "accelerator", "wait"),
    ),
    "Which part of the study": ("searches", "trials", "seeds", "only"),
    "How much at most": ("workers", "max_hours", "max_gpu_hours", "max_trials"),
    "Care": ("checkpoints", "retry_failed", "networks", "measures", "mixed"),
    "Output": ("tune_table",),
}
"""The options in groups, as the help of the command shows them."""


@dataclass(frozen=True)
class RunOptions(Checked):
    """The options of a run; none of them changes a number.

    Args:
        store: Folder or URI of the results.
        address: A Ray cluster: host:port or auto. By default Ray starts on this machine.
        accelerator: The only kind of GPU to train on, by Ray's name: A100, L4, ...
        wait: Seconds to wait for the cluster's head, and for a node that has room for a trial; 60 by default, and 15
            minutes for a node that the cluster may add. A head that exists always has 60 s to answer, and a node 300 s.
        mlflow: MLflow's tracking URI; sqlite in the store by default. none: no MLflow. MLflow must answer at the start;
            if it is down later, the study goes on.
        tensorboard: Folder for TensorBoard's event files, one run for each trial, written by Ray Tune's own callback.
        wandb: Project of Weights & Biases that gets one run for each trial, by Ray Tune's own callback.
        data: Folder of datasets, the same on every machine; TOPK_DATA or data/ by default.
        download: Download missing datasets into the folder of datasets.
        searches: How often each arm is searched. Only missing searches run: recorded trials count as the first one.
            Each search has as many trials and seeds as before, unless --trials and --seeds give the totals over all
            searches.
        trials: Search trials per arm, over all its searches.
        seeds: Fresh seeds per arm, over all its searches.
        only: Only the arms that match this glob, regime/model/loss; may be given several times.
        workers: How many trials run at once; by default as many as the cores or GPUs allow.
        max_hours: Hours that this run may take; the same command continues later. A trial does not start if it would
            probably end later. Trials that still run at the limit are cut off and continue from their checkpoints.
        max_gpu_hours: GPU hours that this run may use, summed over all GPUs.
        max_trials: How many trials may start in this run.
        checkpoints: Least number of seconds between two checkpoints of a trial. A trial that is interrupted continues
            from its last checkpoint.
        retry_failed: Run failed trials again. The new records replace the old ones; later search trials stay as they
            were suggested.
        networks: Also repeat confirmations whose network is missing or damaged. Confirmations without ranks or guesses
            are always repeated.
        measures: Also repeat confirmations that lack a measure of your own, see ``Study.measures``.
        mixed: Let machines and package versions differ: the results of all of them count, and the table says so.
        tune_table: Show Ray Tune's own table of the trials and their epochs, in place of the progress by arms.

    Raises:
        UserError: naming the option, the rule and the value.

    Example:
        >>> RunOptions(workers=2).but(only="clean/*").globs
        ('clean/*',)
    """

    store: str | Path = "runs"
    address: str | None = None
    accelerator: str | None = None
    wait: NonNegative | None = None
    mlflow: str | None = None
    tensorboard: str | Path | None = None
    wandb: str | None = None
    data: str | Path | None = None
    download: bool = False
    searches: Count | None = None
    trials: int | None = None
    seeds: int | None = None
    only: str | Sequence[str] | None = None
    workers: Count | None = None
    max_hours: Positive | None = None
    max_gpu_hours: Positive | None = None
    max_trials: int | None = None
    checkpoints: NonNegative = 30.0
    retry_failed: bool = False
    networks: bool = False
    measures: bool = False
    mixed: bool = False
    tune_table: bool = False

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except UserError as error:  # the class is no word of the command
            raise UserError(str(error).removeprefix(f"{type(self).__name__}.")) from error
        for name in ("store", "data", "mlflow", "address", "accelerator", "tensorboard", "wandb"):
            if (value := getattr(self, name)) is not None:
                check_not_blank(name, str(value))
        if self.address not in (None, "auto"):
            host_and_port(self.address)
        for name, package in (("tensorboard", "tensorboardX"), ("wandb", "wandb")):
            if getattr(self, name) is not None and find_spec(package) is None:
                raise UserError(f"{name} needs a package that is not installed: pip install {package}")

    def but(self, **given: Any) -> RunOptions:
        """Return the options with some replaced; raise ``UserError`` for a name that is none."""
        names = [option.name for option in fields(self)]
        for name in given:
            if name not in names:
                raise unknown_name("option of a run", name, names)
        return replace(self, **given)

    @property
    def globs(self) -> tuple[str, ...]:
        """The globs over arm names; empty for all arms."""
        return (self.only,) if isinstance(self.only, str) else tuple(self.only or ())

    @property
    def given(self) -> dict[str, str]:
        """Where the results and the data are, for suggested commands."""
        shown = {"store": self.store, "data": self.data, "address": self.address}
        return {name: str(value) for name, value in shown.items() if value is not None}

    @property
    def sync(self) -> tuple[str, ...]:
        """The options of ``topk sync`` that fill the run's MLflow."""
        return () if self.mlflow is None else ("--mlflow", shlex.quote(masked(self.mlflow)))

    def whole(self, study: Study) -> Study:
        """Return the study with the requested number of searches."""
        return study if self.searches is None else study.with_budget(searches=self.searches)

    def part(self, study: Study) -> Study:
        """Return the requested arms of a study, with the requested budget and kind of GPU.

        Raises:
            UserError: if a glob matches no arm, or no trial could start within the limits.
        """
        part = (study.only(self.globs) if self.globs else study).with_budget(self.trials, self.seeds)
        part = part if self.accelerator is None else replace(part, accelerator=self.accelerator)
        if self.max_gpu_hours is not None and part.device != "cuda":
            raise UserError(
                f"max_gpu_hours must be left out: study {part.name} trains on the CPU; use max_hours"
            )
        for arm in part.arms:
            if self.max_trials is not None and self.max_trials < (size := arm.protocol.ensemble):
                together = f"{size}, because arm {arm.name} trains that many together" if size > 1 else "1"
                raise UserError(f"max_trials must be at least {together}, got {self.max_trials}")
        return part


@cache
def help_of() -> dict[str, str]:
    """Return the help of each option, by name: what the docstring of :class:`RunOptions` says of it.

    Example:
        >>> help_of()["store"]
        'Folder or URI of the results.'
    """
    text = (RunOptions.__doc__ or "").partition("Args:")[2].partition("Raises:")[0]
    entries = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", text, flags=re.MULTILINE)
    return {name: " ".join(described.split()) for name, described in entries}
