"""``topk new``: writes a study file that runs, for the user's own images or arrays."""

from __future__ import annotations

import importlib.util
import keyword
import math
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from topk_platform.cli.consoles import say, write_file
from topk_platform.cli.new.data_code import DataCode, what_can_be_seen
from topk_platform.cli.options import nonblank
from topk_platform.errors import UserError, unknown_name
from topk_platform.references import is_reference
from topk_platform.specs.checks import absolute

__all__ = ["new"]

_PIXELS = 32
_HEADS = 'Model("feature_head", label="linear"), Model("feature_head", {"layers": 1}, label="mlp")'

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

_Source = Annotated[
    str,
    typer.Option(
        "--from",
        help="A folder of images, CLASS/IMAGE or train/CLASS/IMAGE; or an .npz or .pt file of inputs and labels.",
        callback=nonblank,
    ),
]
_Network = Annotated[
    str | None,
    typer.Option(
        help="A network of this package, such as mlp or convnet; any of torchvision's, such as resnet18; or "
        "module:function, your own. By default one that fits the data.",
    ),
]
_Groups = Annotated[
    str,
    typer.Option(
        help="Groups of similar samples that must stay in one split: a pattern of images' paths such as "
        "'{class}/{group}_*', a CSV file of paths and groups in the folder, or the name of an array."
    ),
]


def new(
    name: Annotated[
        str, typer.Argument(help="Name of the study; its file NAME.py is written to this folder.")
    ],
    source: _Source,
    network: _Network = None,
    k: Annotated[
        int | None,
        typer.Option(
            "-k",
            "--k",
            help="K, the number of guesses shown; by default 5, or half of fewer than ten classes.",
        ),
    ] = None,
    groups: _Groups = "",
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Train heads on the features of a frozen network with ImageNet's weights; for images. It needs the "
            "extra photos.",
        ),
    ] = False,
    labels: Annotated[
        str | None,
        typer.Option(
            "--labels",
            help="A table of the images' labels, where all are in one folder: a file and its label in each line, and "
            "perhaps its split and its group.",
            callback=nonblank,
        ),
    ] = None,
    drop_copies: Annotated[
        bool,
        typer.Option("--drop-copies", help="Leave images out of training that validation or test have too."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Side of the images in pixels; 32, with --features 160.", show_default=False
        ),
    ] = None,
) -> None:
    """Write a study file that runs: three losses, searched and compared, on your own images or arrays.

    If some classes are rare, a fourth loss, balanced_softmax, is added, and all classes count equally. Values that are
    not given are chosen and printed.

    Example: topk new my_birds --from photos/birds --network resnet18 -k 5
    """
    file = _file(name)
    data = _data(absolute(source), size, groups, labels or "", features=features, drop_copies=drop_copies)
    guesses = min(5, math.ceil(data.classes / 2)) if k is None else k
    if not 1 <= guesses < data.classes:
        raise UserError(
            f"-k must be from 1 to {data.classes - 1}, below the number of classes, got {guesses}"
        )
    usual = "linear and mlp" if features else data.network
    model = _HEADS if features and network is None else _model(network or usual)
    _write(file, _text(name, data, model, guesses))
    say(data.summary)
    say(what_can_be_seen(data.tested))
    for note in data.notes:
        say(f"topk: {note}", err=True)
    chosen = [f"--network {usual}"] * (network is None) + [f"-k {guesses}"] * (k is None)
    if chosen:
        say(f"chosen: {', '.join(chosen)}")
    if data.tail:
        say(f"some classes are rare: balanced_softmax is among the losses, macro_top{guesses} selects")
    if data.few:
        say(
            "with few images a frozen network's features usually do better: --features trains heads on them, in minutes"
        )
    say(f"wrote {file}; now: topk plan {name}:study --data {shlex.quote(str(data.folder))}")


def _data(
    source: Path, size: int | None, groups: str, labels: str, *, features: bool, drop_copies: bool
) -> DataCode:
    # Both read data with torch, which takes a second or two to import.
    from topk_platform.cli.new.array_data import array_code  # noqa: PLC0415
    from topk_platform.cli.new.image_data import FEATURES_PIXELS, images_code, on_features  # noqa: PLC0415

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


def _model(network: str) -> str:
    """Return the code of a network; raise ``UserError`` if there is none, or one's own takes other parameters."""
    if is_reference(network):
        from topk_platform.running.preflight.arm_checks import check_network  # noqa: PLC0415 - torch, a second or two

        check_network(network)
        return f'Model("{network}")'
    from torchvision import models  # noqa: PLC0415 - torch, a second or two

    from topk_platform.models import MODELS  # noqa: PLC0415 - likewise

    if network in MODELS:
        return f'Model("{network}")'
    known = models.list_models(module=models)
    if network not in known:
        raise unknown_name("network", network, [*MODELS, *known])
    return f'Model("torchvision", {{"architecture": "{network}"}})'


def _text(name: str, data: DataCode, model: str, guesses: int) -> str:
    """Return the content of a study's file."""
    return _FILE.format(
        title=_in_docstring(
            f"{name}: which loss finds the right one among {guesses} of {data.classes} classes, {data.title}."
        ),
        name=name,
        folder=_in_docstring(shlex.quote(str(data.folder))),
        imports=_imports(data),
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


def _file(name: str) -> Path:
    """Return the file of a new study; raise ``UserError`` for a name that a module cannot have."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UserError(
            f"NAME must be a name that a Python module can have, of letters, digits and _, got {name!r}"
        )
    file = Path(f"{name}.py")
    for existing in (file, Path(name) / "__init__.py"):
        if existing.exists():
            raise UserError(f"{existing} exists already: choose another name")
    if name in sys.builtin_module_names or _is_module(name):
        raise UserError(
            f"NAME must not be that of an installed module, which the file would hide, got {name!r}"
        )
    return file


def _is_module(name: str) -> bool:
    """Return whether a module has this name; a folder of images here is none, and may share a study's name."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return False
    here = [str(Path(name).absolute())]
    return spec.origin is not None or list(spec.submodule_search_locations or ()) != here


def _imports(data: DataCode) -> str:
    names = sorted({*data.names, "Float", "Loss", "Model", "Protocol", "Recipe", "Regime", "Study"})
    ours = [f"from topk_platform import {', '.join(names)}, grid"]
    if data.function:
        ours.append("from topk_platform.data import Dataset, data_folder, from_tensors")
    return "\n".join([*data.imports, *([""] if data.imports else []), *ours])


def _in_docstring(text: str) -> str:
    return text.replace("\\", r"\\").replace('"""', r"\"\"\"")


def _write(file: Path, text: str) -> None:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise UserError("--from must have a path and names in UTF-8: rename the folder or file") from error
    write_file(file, content)
