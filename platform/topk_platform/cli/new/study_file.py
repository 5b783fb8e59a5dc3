"""The file of a study that ``topk new`` writes, from a template, and the networks in it."""

from __future__ import annotations

import shlex
from pathlib import Path

from torchvision import models

from topk_platform.cli.consoles import write_file
from topk_platform.cli.new.own_data import OwnData
from topk_platform.errors import UserError, unknown_name
from topk_platform.models import MODELS, check_model
from topk_platform.references import is_reference
from topk_platform.specs import Model

__all__ = ["HEADS", "model_code", "write_study"]

HEADS = 'Model("feature_head", label="linear"), Model("feature_head", {"layers": 1}, label="mlp")'

_FILE = '''"""{title}

    topk plan {name}:study --data {folder}
    topk run {name}:study --data {folder} --smoke
    topk run {name}:study --data {folder}
"""

from topk_platform import {imports}Float, Loss, Model, Protocol, Recipe, Regime, Study, grid

SEARCHED = {{"learning_rate": Float(0.001, 1, log=True), "weight_decay": Float(1e-6, 1e-2, log=True)}}
FIRST = {{"learning_rate": 0.1, "weight_decay": 1e-4}}

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
        recipe={recipe},{metric}
        protocol=Protocol(searches=3),  # how much luck a search has is seen from several
    ),
    topk={topk},
    trials=30,
    seeds=6,
)
'''
_TAIL_LOSS = """
            Loss("balanced_softmax", SEARCHED, FIRST),"""
_TAIL_METRIC = """
        metric="macro_top{k}",  # the mean over classes: a rare class counts as much as a frequent one"""
_AUGMENTED = """Recipe(
            epochs=20,
            # flip mirrors images at random: leave it out where left and right matter, as for letters
            augmentation=Augmentation(crop={crop}, flip=True),
        )"""


def model_code(network: str) -> str:
    """Return the code of a network.

    Raises:
        UserError: if there is no such network, or one's own takes other parameters.
    """
    if is_reference(network):
        check_model(Model(network))
    if is_reference(network) or network in MODELS:
        return f'Model("{network}")'
    known = models.list_models(module=models)
    if network not in known:
        raise unknown_name("network", network, [*MODELS, *known])
    return f'Model("torchvision", {{"architecture": "{network}"}})'


def write_study(file: Path, data: OwnData, model: str, guesses: int) -> None:
    """Write a study's file.

    Args:
        file: The file, by the study's name.
        data: Its data.
        model: The code of its networks.
        guesses: K.

    Raises:
        UserError: if it cannot be written, or a name in it is no text.
    """
    name = file.stem
    title = f"which loss finds the right one among {guesses} of {data.classes} classes, {data.title}."
    text = _FILE.format(
        title=_in_docstring(f"{name}: {title}"),
        name=name,
        folder=_in_docstring(shlex.quote(str(data.folder))),
        imports="Augmentation, " if data.crop else "",
        regime=data.regime,
        model=model,
        loss=_TAIL_LOSS if data.tail else "",
        metric=_TAIL_METRIC.format(k=guesses) if data.tail else "",
        k=guesses,
        topk=tuple(sorted({1, guesses})),
        recipe=_AUGMENTED.format(crop=data.crop) if data.crop else "Recipe(epochs=20)",
    )
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise UserError("--from must have a path and names in UTF-8: rename the folder or file") from error
    write_file(file, content)


def _in_docstring(text: str) -> str:
    return text.replace("\\", r"\\").replace('"""', r"\"\"\"")
