"""Loading a network from the folder of an export, or from the tensors in a store, and writing it as ONNX."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from topk_platform.errors import UserError, as_user_error, reason
from topk_platform.models import MODELS, architecture_of, build_model, check_model
from topk_platform.serving.classifier import Classifier, Prepared
from topk_platform.serving.frozen import OnFeatures, differing_tensor, read_frozen, read_tensors
from topk_platform.serving.package import ONNX, WEIGHTS, Config
from topk_platform.serving.set_calibration import SetCalibration
from topk_platform.specs import Model
from topk_platform.specs.fields import check_call
from topk_platform.training.steps.batches import Normalisation
from topk_platform.trust import Trust, made_by

__all__ = ["assembled", "load_model", "load_trusting", "write_onnx"]

_LEAST = 64  # an option of one of our networks may always have this value, even if the tensors are smaller


def load_model(folder: str | Path, *, trust: Iterable[str] = ()) -> Classifier:
    """Return the network that ``topk export STUDY --arm ARM --to FOLDER`` wrote.

    Three lines are enough: ``from topk_platform import load_model``, ``model = load_model("FOLDER")`` and
    ``model.predict(["image.png"])``. Nothing is unpickled, and without ``trust`` only code of this package is executed.
    If the network is your own, the function that builds it must be importable, and its module must be trusted by name.

    Args:
        folder: The folder.
        trust: The modules whose code the folder may name, such as ``"my_lab"``, with their submodules.

    Raises:
        UserError: if the folder has no exported network, is damaged, or names code that is not trusted or does not
            exist.
    """
    check_call(load_model, locals())
    return load_trusting(Path(folder).expanduser(), Trust.of(trust))


def load_trusting(folder: Path, trust: Trust) -> Classifier:
    """Return the network in a folder, as :func:`load_model` does.

    Args:
        folder: The folder.
        trust: The code that it may name.

    Raises:
        UserError: as for :func:`load_model`.
    """
    config, path = Config.read(folder), folder / WEIGHTS
    trust.check(folder, config.code)
    tensors = read_tensors(path, config.sha256)
    calibration = SetCalibration.read(folder, config.key, config.inputs.classes)
    head = replace(assembled(config, tensors, path, trust), calibration=calibration)
    if config.backbone is None:
        return head
    behind = OnFeatures(read_frozen(folder, config.backbone), head.module.network)
    return replace(head, module=Prepared(behind, None).eval())


def assembled(config: Config, tensors: Mapping[str, Tensor], file: Path | str, trust: Trust) -> Classifier:
    """Return the network with these tensors; for a head on features, the head without its backbone.

    Args:
        config: The network's configuration.
        tensors: Its tensors, by name.
        file: The file of the tensors, for messages.
        trust: The code that the configuration may name.

    Raises:
        UserError: if the function that builds the network is not trusted, does not exist, or builds another network.
    """
    trust.check(file, config.code)
    takes, model = config.inputs, architecture_of(config.model)
    with made_by(file, f"the tensors of model {model.name}"):
        check_model(model)
    if model.name in MODELS:
        _check_builds(config, model, tensors, file)
    with torch.random.fork_rng(devices=[]), as_user_error(f"model {model.name}"):
        network = build_model(model, config.shape, takes.classes, config.head)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise _another(config, " ".join(str(error).split())) from error
    images = takes.kind == "image" and config.backbone is None
    how = Normalisation.by(takes.mean, takes.std) if images else None
    return Classifier(config, Prepared(network, how).eval())


def _check_builds(config: Config, model: Model, tensors: Mapping[str, Tensor], file: Path | str) -> None:
    """Raise ``UserError`` unless the options build a network with exactly these tensors.

    The network is first built on the device ``meta``, which takes no memory, because a file may describe a network of
    terabytes.
    """
    sides = (size for tensor in tensors.values() for size in tensor.shape)
    most = max(_LEAST, len(tensors), max(sides, default=0))
    for name, value in model.options.items():
        if isinstance(value, int | float) and value > most:
            raise _another(config, f"its tensors in {file} allow {name} of at most {most}, got {value}")
    with made_by(file, f"the tensors of model {model.name}"), torch.device("meta"):
        built = build_model(model, config.shape, config.inputs.classes, config.head).state_dict()
    if why := differing_tensor(built, tensors, file):
        raise _another(config, why)


def _another(config: Config, why: str) -> UserError:
    return UserError(f"model {config.model.name} builds another network than was exported: {why}")


def write_onnx(folder: Path, trust: Trust) -> None:
    """Write ``model.onnx`` beside an exported network: from inputs ``(n, *shape)`` for any n to scores ``(n, L)``.

    The file's metadata has the names of the classes as JSON under ``topk.classes``.

    Args:
        folder: The folder of the export.
        trust: The code that may build its network.

    Raises:
        UserError: if the extra ``onnx`` is not installed, or ONNX lacks an operation of the network.
    """
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        raise UserError(f"--onnx needs {' and '.join(missing)}: pip install 'topk-studies[onnx]'")
    classifier = load_trusting(folder, trust)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about torch's internals
            program = torch.onnx.export(
                classifier.module,
                (torch.zeros((2, *classifier.config.inputs.shape), dtype=classifier.dtype),),
                input_names=["inputs"],
                output_names=["scores"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
            if program is None:
                raise RuntimeError("torch.onnx.export with dynamo=True must return a program, got None")
            names = [
                classifier.config.inputs.name(label) for label in range(classifier.config.inputs.classes)
            ]
            program.model.metadata_props["topk.classes"] = json.dumps(names)
            program.save(folder / ONNX, external_data=False)
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(
            f"model {classifier.config.model.name} cannot be exported to ONNX: {reason(error)}"
        ) from error
