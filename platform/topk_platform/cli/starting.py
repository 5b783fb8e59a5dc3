"""``topk new``: a study file that runs, for one's own images or arrays."""

from __future__ import annotations

import importlib.util
import json
import keyword
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from topk_platform.cli.options import named_place
from topk_platform.errors import UserError, reason, unknown_name

__all__ = ["NETWORKS", "new"]

NETWORKS = ("convnet", "densenet", "densenet121_small", "linear", "mlp", "resnet18_small")
"""Ours; any other name is torchvision's."""

_ARRAYS = (".npz", ".pt")
_PANEL = "What is asked for otherwise"

_FILE = '''"""{title}

    topk plan {name}:study --data {place}
    topk run {name}:study --data {place} --smoke
    topk run {name}:study --data {place}
"""

{imports}

RATE = Float(0.001, 1, log=True)
{function}
study = Study(
    name="{name}",
    arms=grid(
        regimes=[{regime}],
        models=[{model}],
        losses=[
            Loss("cross_entropy", {{"learning_rate": RATE}}, {{"learning_rate": 0.1}}),
            Loss(
                "smooth_topk_svm",
                {{"learning_rate": RATE, "tau": Float(0.01, 10, log=True)}},
                {{"learning_rate": 0.1, "tau": 1.0}},
            ),
        ],
        k={k},
        recipe=Recipe(epochs={epochs}{augmentation}),
    ),
    topk={topk},
    trials={trials},
    seeds={seeds},
)
'''

_READ_NPZ = """

def data() -> Dataset:
    with np.load(data_folder() / {file}) as arrays:
        return from_tensors((arrays[{inputs}], arrays[{labels}]))

"""
_READ_PT = """

def data() -> Dataset:
    arrays = torch.load(data_folder() / {file}, weights_only=True)
    return from_tensors((arrays[{inputs}], arrays[{labels}]))

"""


@dataclass(frozen=True)
class _Data:
    """What a study file says of its data.

    Args:
        title: What they are, in words.
        place: The folder of datasets that holds them.
        classes: How many classes there are.
        network: What suits them.
        regime: The code of the regime; ``{name}`` stands for the study's name.
        function: The code of a function that reads them, if they need one.
        imports: The lines that it needs.
        augmentation: The code of the recipe's, if there is one.
    """

    title: str
    place: Path
    classes: int
    network: str
    regime: str
    function: str = ""
    imports: tuple[str, ...] = ()
    augmentation: str = ""


def new(
    name: Annotated[str, typer.Argument(help="Of the study and of its file, NAME.py, in this folder.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A folder of images, CLASS/IMAGE or train/CLASS/IMAGE; or an .npz or .pt file of inputs and labels.",
            callback=named_place,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(NETWORKS)}, or any of torchvision's.", rich_help_panel=_PANEL),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", help="How many guesses count.", rich_help_panel=_PANEL)
    ] = None,
    size: Annotated[int, typer.Option(min=8, help="Of images, in pixels.")] = 32,
    epochs: Annotated[int, typer.Option(min=1, help="Of a training.")] = 20,
    trials: Annotated[int, typer.Option(min=1, help="Search trials per arm.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="Confirmation seeds per arm.")] = 5,
) -> None:
    """Write a study file that runs: two losses, searched and compared, on your own images or arrays."""
    file = _file(name)
    place = Path(_answer(source, "--from", "Folder of images, or .npz or .pt file")).expanduser().absolute()
    data = _images(place, size) if place.is_dir() else _arrays(place)
    if data.classes < 2:
        raise UserError(f"--from must hold at least 2 classes, got {data.classes} in {place}")
    model = _model(_answer(network, "--network", "Network", data.network))
    guesses = _guesses(k, data.classes)
    text = _FILE.format(
        title=f"{name}: which loss finds the right one among {guesses} of {data.classes} classes, {data.title}.",
        name=name,
        place=_quoted(data.place),
        imports=_imports(data),
        function=data.function,
        regime=data.regime.format(name=name),
        model=model,
        k=guesses,
        topk=tuple(sorted({1, guesses})) if guesses > 1 else "(1,)",
        epochs=epochs,
        trials=trials,
        seeds=seeds,
        augmentation=data.augmentation,
    )
    _write(file, text)
    typer.echo(f"wrote {file}; now: topk plan {name}:study --data {_quoted(data.place)}")


def _file(name: str) -> Path:
    """Return the file of a study that is to be; raise ``UserError`` for a name that no module may have."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UserError(f"NAME must be letters, digits and _, as a module's is, got {name!r}")
    file = Path(f"{name}.py")
    if file.exists() or Path(name).exists():
        raise UserError(f"{file if file.exists() else name} is there already: choose another name")
    if name in sys.builtin_module_names or importlib.util.find_spec(name) is not None:
        raise UserError(f"NAME must not be an installed module's, which it would hide, got {name!r}")
    return file


def _answer(value: Any, option: str, question: str, default: Any = None) -> str:
    """Return what was given, or ask for it; raise ``UserError`` where nobody can be asked."""
    if value is not None:
        return str(value)
    if sys.stdin.isatty():
        return str(typer.prompt(question, default=default))
    if default is None:
        raise UserError(f"{option} must be given where there is no terminal to ask on")
    return str(default)


def _guesses(given: int | None, classes: int) -> int:
    text = _answer(given, "-k", "How many guesses count", min(5, classes - 1))
    if not text.isdigit() or not 1 <= int(text) < classes:
        raise UserError(f"-k must be from 1 to {classes - 1}, below the number of classes, got {text!r}")
    return int(text)


def _model(network: str) -> str:
    if network in NETWORKS:
        return f'Model("{network}")'
    from torchvision import models  # noqa: PLC0415 - torch, a second or two

    known = models.list_models(module=models)
    if network not in known:
        raise unknown_name("network", network, [*NETWORKS, *known])
    return f'Model("torchvision", {{"architecture": "{network}"}})'


def _images(folder: Path, size: int) -> _Data:
    train = folder / "train" if (folder / "train").is_dir() else folder
    classes = [place for place in train.iterdir() if place.is_dir() and not place.name.startswith(".")]
    options = f'{{"folder": {_code(folder.name)}, "size": {size}}}'
    return _Data(
        title=f"on the images of {folder.name}",
        place=folder.parent,
        classes=len(classes),
        network="convnet",
        regime=f'Regime("images", "image_folder", options={options.replace("{", "{{").replace("}", "}}")})',
        imports=("Augmentation",),
        augmentation=f", augmentation=Augmentation(crop={size // 8}, flip=True)",
    )


def _arrays(file: Path) -> _Data:
    if file.suffix not in _ARRAYS or not file.is_file():
        raise UserError(
            f"--from must be a folder of images or a file {' or '.join(_ARRAYS)}, got {str(file)!r}"
        )
    import numpy as np  # noqa: PLC0415 - what is a folder need not wait for

    arrays = {name: np.asarray(array) for name, array in _reader(file.suffix)(file).items()}
    inputs, labels = _pair(file, arrays)
    image = arrays[inputs].dtype == np.uint8 and arrays[inputs].ndim == 4
    read, library = (_READ_NPZ, "import numpy as np") if file.suffix == ".npz" else (_READ_PT, "import torch")
    return _Data(
        title=f"on the arrays of {file.name}",
        place=file.parent,
        classes=len(np.unique(arrays[labels])),
        network="convnet" if image else "mlp",
        regime='Regime("arrays", "{name}:data")',
        function=read.format(file=_code(file.name), inputs=_code(inputs), labels=_code(labels)),
        imports=(library,),
    )


def _reader(suffix: str) -> Callable[[Path], Mapping[Any, Any]]:
    return _npz if suffix == ".npz" else _pt


def _npz(file: Path) -> Mapping[Any, Any]:
    import numpy as np  # noqa: PLC0415 - as above

    try:
        with np.load(file) as arrays:
            return dict(arrays)
    except Exception as error:  # whatever NumPy says of a file that is none
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error


def _pt(file: Path) -> Mapping[Any, Any]:
    import torch  # noqa: PLC0415 - a second or two

    try:
        found = torch.load(file, weights_only=True)
    except Exception as error:  # whatever torch says of a file that is none
        raise UserError(f"--from {str(file)!r} cannot be read: {reason(error)}") from error
    named = dict(enumerate(found)) if isinstance(found, tuple | list) else found
    if not isinstance(named, dict):
        raise UserError(
            f"--from must hold a dictionary or a pair of tensors, got {type(found).__name__} in {file}"
        )
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


def _pair(file: Path, arrays: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return the names of the inputs and of the labels: the one list of whole numbers, and what is as long as it."""
    labels = [name for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iu"]
    inputs = [name for name in arrays if labels and name not in labels and arrays[name].ndim >= 2]
    inputs = [name for name in inputs if len(arrays[name]) == len(arrays[labels[0]])]
    if len(labels) != 1 or len(inputs) != 1:
        shapes = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in arrays.items())
        raise UserError(
            f"--from must hold inputs (n, ...) and whole labels (n,), one of each, got {shapes or 'nothing'} in {file}"
        )
    return inputs[0], labels[0]


def _imports(data: _Data) -> str:
    names = ["Float", "Loss", "Model", "Recipe", "Regime", "Study", "grid"]
    if not data.function:
        return f"from topk_platform import {', '.join(sorted({*data.imports, *names[:-1]}))}, grid"
    lines = [*data.imports, "", f"from topk_platform import {', '.join(names)}"]
    return "\n".join([*lines, "from topk_platform.data import Dataset, data_folder, from_tensors"])


def _code(value: Any) -> str:
    """Return a text or a number as Python's code, in double quotes as the rest of the file."""
    return json.dumps(value)


def _quoted(place: Path) -> str:
    return shlex.quote(str(place))


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x", encoding="utf-8") as out:  # never over another
            out.write(text)
    except FileExistsError as error:
        raise UserError(f"{file} is there already: choose another name") from error
    except OSError as error:
        raise UserError(f"{file} cannot be written: {reason(error)}") from error
