"""The file of a study that ``topk new`` writes: its text, its data and its networks."""

from __future__ import annotations

import shlex
from pathlib import Path

from torchvision import models

from topk_platform.cli.consoles import write_file
from topk_platform.cli.new.array_data import array_code
from topk_platform.cli.new.data_code import DataCode
from topk_platform.cli.new.image_data import FEATURES_PIXELS, images_code, on_features
from topk_platform.errors import UserError, unknown_name
from topk_platform.models import MODELS
from topk_platform.references import is_reference
from topk_platform.running.preflight.arm_checks import check_network

__all__ = ["HEADS", "data_code", "model_code", "write_study"]

_PIXELS = 32
HEADS = 'Model("feature_head", label="linear"), Model("feature_head", {"layers": 1}, label="mlp")'

_FILE = '''"""{title}

    topk plan {name}:study --data {folder}
    topk run {name}:study --data {folder} --smoke
    topk run {name}:study --data {folder}
"""

{imports}

SEARCHED = {{"learning_rate": Float(0.001, 1, log=True), "weight_decay": Float(1e-6, 1e-2, log=True)}}
FIRST = {{"learning_rate": 0.1, "weight_decay": 1e-4}}
{function}
study = Study(
    name="{name}",
    arms=grid(
        regimes=[{regime}],
        models=[{model}],
        losses=[
            Loss("cross_entropy", SEARCHED, FIRST),
            Loss("smooth_topk_svm", {{**SEARCHED, "tau": Float(0.01, 10, log=True)}}, {{**FIRST, "tau": 1.0}}),
            # against wrong labels, which most data have
            Loss("generalized_cross_entropy", {{**SEARCHED, "gamma": Float(0.01, 1)}}, {{**FIRST, "gamma": 0.7}}),{loss}
        ],
        k={k},
{flip}        recipe=Recipe(epochs=20{augmentation}),{metric}
        protocol=Protocol(searches=3),  # how much luck a search has is seen from several
    ),
    topk={topk},
    trials=30,
    seeds=6,
)
'''


_TAIL_LOSS = """
            Loss("balanced_softmax", SEARCHED, FIRST),"""
_FLIP = """        # flip mirrors images at random: leave it out where left and right matter, as for letters
"""
_TAIL_METRIC = """
        metric="macro_top{k}",  # the mean over classes: a rare class counts as much as a frequent one"""


def data_code(
    source: Path, size: int | None, groups: str, labels: str, *, features: bool, drop_copies: bool
) -> DataCode:
    """Return the code of a study's images or arrays.

    Args:
        source: A folder of images, or a file of arrays.
        size: The side of the images; None for 32, or 160 for features.
        groups: The pattern, file or array of the samples' groups; empty for none.
        labels: The path of a table of the images' labels; empty where folders are the classes.
        features: Whether heads are trained on the features of a frozen network.
        drop_copies: Whether images that a later split has are left out of training.

    Raises:
        UserError: if the data cannot be read or have fewer than two classes, or an option is not for them.
    """
    if size is not None and not features and source.is_file():
        raise UserError(
            f"--size is for images that are scaled, not for arrays, which stay as they are, got {size}"
        )
    if labels and not source.is_dir():
        raise UserError(f"--labels is for a folder of images, got {labels!r} with --from {str(source)!r}")
    side = size or (FEATURES_PIXELS if features else _PIXELS)
    if source.is_dir():
        data = images_code(source, side, groups, labels, drop_copies)
    else:
        data = array_code(source, groups, drop_copies)
    if data.classes < 2:
        each = ", each a folder of images" if source.is_dir() else ""
        raise UserError(f"--from must hold at least 2 classes{each}, got {data.classes} in {source}")
    return on_features(data, size or FEATURES_PIXELS) if features else data


def model_code(network: str) -> str:
    """Return the code of a network.

    Raises:
        UserError: if there is no such network, or one's own takes other parameters.
    """
    if is_reference(network):
        check_network(network)
    if is_reference(network) or network in MODELS:
        return f'Model("{network}")'
    known = models.list_models(module=models)
    if network not in known:
        raise unknown_name("network", network, [*MODELS, *known])
    return f'Model("torchvision", {{"architecture": "{network}"}})'


def write_study(file: Path, data: DataCode, model: str, guesses: int) -> None:
    """Write a study's file.

    Args:
        file: The file, by the study's name.
        data: The code of its data.
        model: The code of its networks.
        guesses: K.

    Raises:
        UserError: if it cannot be written, or a name in it is no text.
    """
    name = file.stem
    names = sorted({*data.names, "Float", "Loss", "Model", "Protocol", "Recipe", "Regime", "Study"})
    imports = [
        *data.imports,
        *([""] if data.imports else []),
        f"from topk_platform import {', '.join(names)}, grid",
    ]
    if data.function:
        imports.append("from topk_platform.data import Dataset, data_folder, from_tensors")
    text = _FILE.format(
        title=_in_docstring(
            f"{name}: which loss finds the right one among {guesses} of {data.classes} classes, {data.title}."
        ),
        name=name,
        folder=_in_docstring(shlex.quote(str(data.folder))),
        imports="\n".join(imports),
        function=data.function,
        regime=data.regime(name),
        model=model,
        loss=_TAIL_LOSS if data.tail else "",
        metric=_TAIL_METRIC.format(k=guesses) if data.tail else "",
        k=guesses,
        topk=tuple(sorted({1, guesses})) if guesses > 1 else "(1,)",
        augmentation=data.augmentation,
        flip=_FLIP if "flip" in data.augmentation else "",
    )
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise UserError("--from must have a path and names in UTF-8: rename the folder or file") from error
    write_file(file, content)


def _in_docstring(text: str) -> str:
    return text.replace("\\", r"\\").replace('"""', r"\"\"\"")
