"""A trial and its record, plain data that are sent to a worker and back, and the inputs of its network."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Annotated, Any, Literal, cast

from topk_platform.specs.arm import Arm, Model, Regime
from topk_platform.specs.checks import check
from topk_platform.specs.codec import canonical_json, decode, digest, encode
from topk_platform.specs.fields import Count, Whole, check_fields, one_of
from topk_platform.specs.loss import Loss, Parameter, Schedule, Setting
from topk_platform.specs.recipe import EMA, Augmentation, Numerics, Recipe
from topk_platform.specs.regime_conditions import CONDITIONS
from topk_platform.specs.search_rules import PRUNERS, SAMPLERS
from topk_platform.specs.searches import Protocol
from topk_platform.specs.space import Choice, Float, Int, Scalar

__all__ = ["SPECS", "EpochRecord", "Inputs", "Phase", "Status", "Trial", "TrialRecord"]


@dataclass(frozen=True)
class Inputs:
    """The inputs and classes of a trained network.

    Args:
        shape: Shape of one input; for images (channels, height, width).
        classes: L.
        kind: ``"image"``: bytes x, from which the network gets ``(x / 255 - mean) / std``; ``"tensor"``: float32
            numbers, which the network gets as they are.
        names: The classes' names, which may be thousands and are not printed; empty if the dataset has none.
        mean: Mean of each channel, of values in [0, 1].
        std: Standard deviation of each channel, likewise.
        resize: The length of the shorter side to which images in files are scaled before their middle is taken; 0 if an
            image is scaled to the network's own height or width.

    Raises:
        UserError: if names are given, but not one for each class, or there is not one mean and one deviation for each
            channel of an image.

    Example:
        >>> Inputs((1, 2, 2), 2, "image", ("a", "b"), (0.5,), (0.25,)).name(1)
        'b'
        >>> Inputs((4,), 2, "tensor").name(1)
        '1'
    """

    shape: tuple[Count, ...]
    classes: Count
    kind: Annotated[str, one_of("image", "tensor")]
    names: tuple[str, ...] = field(default=(), repr=False)
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    resize: Whole = 0

    def __post_init__(self) -> None:
        check_fields(self)
        check(
            not self.names or len(self.names) == self.classes,
            f"Inputs.names must hold one name for each of the {self.classes} classes, got {len(self.names)}",
        )
        channels = self.shape[0] if self.kind == "image" else 0
        check(
            len(self.mean) == len(self.std) == channels,
            f"Inputs.mean and std must hold one number per channel, {channels}, got {self.mean} and {self.std}",
        )

    def name(self, label: int) -> str:
        """Return a class's name, or its number if classes have no names."""
        return self.names[label] if self.names else str(label)

    @classmethod
    def from_data(cls, data: Any) -> Inputs:
        """Return the inputs from which :func:`~topk_platform.specs.codec.encode` made ``data``.

        Raises:
            ValueError: if ``data`` describes something else.
        """
        value = decode(data, (cls,))
        if not isinstance(value, cls):
            raise ValueError(f"not the {', '.join(item.name for item in fields(cls))} of inputs: {data!r}")
        return value


Phase = Literal["search", "confirm"]
Status = Literal["completed", "pruned", "diverged", "failed"]

SPECS = (
    *(Arm, Augmentation, Choice, Float, Int, Loss, Model, Numerics, Protocol, Recipe, Regime, Schedule),
    EMA,
    *CONDITIONS,
    *SAMPLERS,
    *PRUNERS,
)
"""The specs that an arm is made of."""


@dataclass(frozen=True)
class Trial:
    """All that determines one result, and the study to which it belongs: its hash is the trial's key.

    Args:
        study: The study's name. Nothing that is drawn depends on it.
        arm_id: The arm's ID, see :meth:`~topk_platform.specs.Study.arm_id`.
        arm: The arm.
        topk: The k of the metrics.
        phase: ``"search"`` or ``"confirm"``.
        number: The search trial's number in its arm; for a confirmation, the number of the trial that it confirms.
        seed: The seed of its search, 0 in the first one, or of the confirmation; see
            :class:`~topk_platform.specs.Repeats`.
        root: The root of all random streams.
        values: The values that the searcher chose.
        targets: Accuracies. For each, the least K that reaches it is measured.
        stop_below: Pairs (epoch, value): stop after that epoch if the metric is below that value.
        together: The trials that train as one ensemble: the numbers of search trials, or the seeds of confirmations.
        threads: Torch threads.
        device: ``"cpu"`` or ``"cuda"``.
        dataset_fingerprint: The fingerprint of the data before conditions.
        code_version: The components that its training uses with their versions, see
            :func:`~topk_platform.versions.version_of`.
        environment: The versions and the kind of machine that determine its last bits; empty if any may train it.
        measures: The metrics besides the accuracies, see :class:`~topk_platform.specs.Study`.
    """

    study: str
    arm_id: str
    arm: Arm
    topk: tuple[int, ...]
    phase: Phase
    number: int
    seed: int
    root: int
    values: Mapping[str, Scalar]
    dataset_fingerprint: str
    code_version: str
    targets: tuple[float, ...] = ()
    stop_below: tuple[tuple[int, float], ...] = ()
    together: tuple[int, ...] = ()
    threads: int = 1
    device: str = "cpu"
    environment: Mapping[str, str] = field(default_factory=dict)
    measures: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """The hash of all the fields that have not their default."""
        return digest(self)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The fixed and the chosen parameters together."""
        return self.arm.loss.parameters(self.values)

    @property
    def setting(self) -> Setting:
        """The same parameters, divided into the recipe and the loss's own parameters."""
        return self.arm.setting(self.values)

    def to_json(self) -> str:
        """Return the trial's canonical JSON."""
        return canonical_json(self)

    @classmethod
    def from_json(cls, text: str) -> Trial:
        """Return the trial that ``to_json`` wrote.

        Raises:
            ValueError: if the text is not a trial's.
        """
        value = decode(json.loads(text), (*SPECS, cls))
        if not isinstance(value, cls):
            raise ValueError(f"not a trial: {text[:80]!r}")
        return value


@dataclass(frozen=True)
class EpochRecord:
    """The record of an epoch that was validated.

    Args:
        epoch: From 1.
        train_loss: The mean loss over the training samples.
        validation: The metrics of the validation split.
        seconds: The time since the last epoch that was validated, this validation included.
        learning_rate: The learning rate of the last step.
        gradient_density: Mean count of entries of the loss's gradient with respect to a sample's scores that
            are not 0, in the last batch (berrada2018, Fig. 2b).
        step_seconds: Mean time of a training step.
    """

    epoch: int
    train_loss: float | None
    validation: Mapping[str, float]
    seconds: float
    learning_rate: float
    gradient_density: float | None = None
    step_seconds: float | None = None


@dataclass(frozen=True)
class TrialRecord:
    """The record of a trial that has ended: its status, metrics, epochs, times, versions and files.

    ``validation`` holds the metrics of the weights that were kept, by default the last epoch's. ``test`` holds those of
    a confirmed run. Times are POSIX seconds. ``artifacts`` holds the SHA-256 of each file that was stored with the
    trial, and ``missing`` the reason why a file could not be stored, both by the kind of file. ``own`` holds what
    the user's own measures gave, see :func:`topk_platform.own_measures.recorded`.
    """

    trial: Trial
    status: Status
    reason: str = ""
    validation: Mapping[str, float] = field(default_factory=dict)
    test: Mapping[str, float] | None = None
    epochs: tuple[EpochRecord, ...] = ()
    train_seconds: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    own: str = ""

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(encode(self))

    @classmethod
    def from_json(cls, text: str) -> TrialRecord:
        """Return the record that ``to_json`` wrote."""
        return cast("TrialRecord", decode(json.loads(text), (*SPECS, Trial, EpochRecord, cls)))

    def replace_versions(self, **versions: str) -> TrialRecord:
        """Return the record with these versions added."""
        return dataclasses.replace(self, versions={**self.versions, **versions})
