"""The model card of an exported network: its origin, its test results, its use and its limits."""

from __future__ import annotations

from collections.abc import Mapping

from topk_platform.records.networks import SavedModel
from topk_platform.records.rows import Row
from topk_platform.references import is_reference
from topk_platform.results.intervals import Estimate
from topk_platform.serving.package import Config
from topk_platform.specs import Inputs, Study, canonical_json, number_text
from topk_platform.specs.checks import plural

__all__ = ["model_card", "with_calibration"]

_UNCALIBRATED = (
    "The network is not calibrated, so it gives no sets. `topk predict . PHOTOS --calibrate` calibrates it on labelled "
    "inputs of yours, PHOTOS/CLASS/INPUT.\n"
)
_SETS, _LIMITS = "\n## Sets\n\n", "\n## Limits\n\n"


def model_card(
    study: Study,
    saved: SavedModel,
    config: Config,
    row: Row,
    estimates: Mapping[str, Estimate],
) -> str:
    """Return a network's model card, in Markdown; it says that the network is not calibrated.

    Args:
        study: The network's study.
        saved: The network.
        config: Its configuration.
        row: The ledger's row of its confirmation.
        estimates: The arm's test metrics over all its seeds, by name.
    """
    arm, trial, frozen = saved.trial.arm, saved.trial, config.backbone
    conditions = [canonical_json(condition) for condition in arm.regime.conditions]
    values = [f", {name} {value}" for name, value in trial.parameters.items()]
    facts = {
        "study": f"{study.name}: {study.description}" if study.description else study.name,
        "regime": f"{arm.regime.name}: {arm.regime.dataset} {canonical_json(arm.regime.options)}",
        "conditions of the training data": ", ".join(conditions) or "none",
        "model": f"{arm.model.name} {canonical_json(arm.model.options)}, {arm.loss.head} head",
        **({"frozen backbone": f"{frozen.name} at {frozen.pixels} pixels, in this folder"} if frozen else {}),
        "loss": f"{arm.loss.name}{''.join(values)}",
        "trained for": f"{plural(arm.k, 'candidate')} of {saved.inputs.classes} classes, "
        f"{plural(arm.recipe.epochs, 'epoch')} at most",
        "trial": f"{trial.key}, seed {trial.seed}",
        "data's fingerprint": trial.dataset_fingerprint,
        "code version": trial.code_version,
    }
    return (
        f"# {arm.name}\n\n"
        + "".join(f"- {name}: {text}\n" for name, text in facts.items())
        + f"\n## Test results\n\n{_numbers(row, estimates)}\n"
        + f"## Use\n\n{_usage(config.inputs, arm.k)}"
        + f"{_SETS}{_UNCALIBRATED}{_limits(saved, config)}"
    )


def with_calibration(card: str, inputs: Inputs, calibration: str) -> str:
    """Return a model card with another text about the calibration.

    Args:
        card: The card.
        inputs: The network's inputs.
        calibration: The text about the calibration.
    """
    file, _ = _example(inputs)
    use = (
        f"    topk predict . {file} --coverage 95\n\n"
        f'```python\nmodel.predict_sets(["{file}"], coverage=0.95)\n```\n\n'
    )
    before, heading, after = card.partition(_SETS)
    _, limits, rest = after.partition(_LIMITS)
    return f"{before}{heading}{use}{calibration}{limits}{rest}"


def _numbers(row: Row, estimates: Mapping[str, Estimate]) -> str:
    lines = ["| metric | this network | its arm | n |", "|---|---|---|---|"]
    for metric, estimate in estimates.items():
        own = row.get(f"test.{metric}")
        lines.append(
            f"| {metric} | {'' if own is None else number_text(metric, own)} | {_interval(metric, estimate)} | "
            f"{estimate.n} |"
        )
    covers = sorted({estimate.covers for estimate in estimates.values()})
    return "\n".join(lines) + (
        f"\n\n± is half a 95 % interval over {' or '.join(covers)}; brackets hold its ends; n is the number of seeds. "
        "This network is the arm's seed with the best validation, unless another seed was requested. For a new network "
        "trained by the same recipe, expect the arm's numbers.\n"
    )


def _interval(metric: str, estimate: Estimate) -> str:
    mean, half, low, high = (
        number_text(metric, value)
        for value in (estimate.mean, estimate.half_width, estimate.low, estimate.high)
    )
    if estimate.n < 2:
        return mean
    return f"{mean} [{low}, {high}]" if estimate.is_uneven else f"{mean} ± {half}"


def _example(inputs: Inputs) -> tuple[str, str]:
    """Return the name of an input file as an example, and the kind of its content."""
    return ("image.png", "images") if inputs.kind == "image" else ("input.npy", f"float32 {inputs.shape}")


def _usage(inputs: Inputs, k: int) -> str:
    file, what = _example(inputs)
    gives = (
        f"{k} candidates, each with the probability of being among the {k} best, where a set of {k} classes has weight "
        "exp(sum of its scores)"
        if k > 1
        else "1 candidate with the softmax of its score"
    )
    return (
        f"    topk predict . {file}\n\n"
        "```python\nfrom topk_platform import load_model\n"
        f'model = load_model(".")\nmodel.predict(["{file}"])\n```\n\n'
        f"It takes {what} and gives {gives}. These probabilities are not calibrated.\n\n{_preprocessing(inputs)}\n"
    )


def _preprocessing(inputs: Inputs) -> str:
    """Return how an input becomes what the network takes, for other programs such as those of ``model.onnx``."""
    if inputs.kind != "image":
        return "Inputs are taken as they are."
    channels, height, width = inputs.shape
    scaled = (
        f"so that its shorter side has {inputs.resize} pixels"
        if inputs.resize
        else f"so that it just covers {height} × {width} pixels"
    )
    return (
        "An image is turned upright as its EXIF says, put on white where it is transparent, scaled (bilinear, with "
        f"antialiasing) {scaled}, and cropped to the {height} × {width} pixels in its middle. These bytes, uint8 "
        f"(n, {channels}, {height}, {width}), are also what `model.onnx` takes; it normalises them itself."
    )


def _limits(saved: SavedModel, config: Config) -> str:
    recipe = saved.trial.arm.recipe
    notes = []
    if recipe.test_crops:
        notes.append(
            "its test results average ten crops of an image; `topk predict` uses the middle crop only"
        )
    if recipe.numerics.bfloat16:
        notes.append("it was tested in bfloat16; `topk predict` computes in float32")
    if config.inputs.kind == "image":
        notes.append(
            "images must look like those of its regime: same subject, same background, same polarity"
        )
    for name in filter(is_reference, config.code.values()):
        module = name.partition(":")[0]
        notes.append(
            f"it is built by `{name}`: module `{module}` must be importable where it is used, and trusted by name: "
            f'`--trust {module}`, or `load_model(".", trust=["{module}"])`'
        )
    if not saved.inputs.names:
        notes.append("its data name no classes, so candidates are numbers")
    return _LIMITS + "".join(f"- {note}\n" for note in notes) if notes else ""
