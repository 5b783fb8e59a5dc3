"""``topk new``: writes a study file that runs, for the user's own images or arrays."""

from __future__ import annotations

import importlib.util
import keyword
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from topk_platform.cli.new.data import data_code
from topk_platform.cli.new.data_code import DataCode
from topk_platform.cli.new.features import HEADS, PIXELS, on_features
from topk_platform.cli.new.networks import NETWORKS, NetworkCode, network_code
from topk_platform.cli.options import nonblank, under
from topk_platform.errors import UserError, reason
from topk_platform.specs.checks import absolute

__all__ = ["new"]

_asked = under("Asked for if not given")

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
            Loss("smooth_topk_svm", {{**SEARCHED, "tau": Float(0.01, 10, log=True)}}, {{**FIRST, "tau": 1.0}}),{loss}
        ],
        k={k},
{flip}        recipe=Recipe(epochs={epochs}{augmentation}),{metric}
    ),
    topk={topk},
    trials={trials},
    seeds={seeds},
)
'''


_TAIL_LOSS = """
            Loss("balanced_softmax", SEARCHED, FIRST),"""
_FLIP = """        # flip mirrors images at random: leave it out where left and right matter, as for letters
"""
_TAIL_METRIC = """
        metric="macro_top{k}",  # the mean over classes: a rare class counts as much as a frequent one"""

_Source = Annotated[
    str | None,
    _asked(
        "--from",
        help="A folder of images, CLASS/IMAGE or train/CLASS/IMAGE; an .npz or .pt file of inputs and labels; or a "
        "folder that a Hugging Face image dataset was saved to by save_to_disk.",
        callback=nonblank,
    ),
]
_Network = Annotated[
    str | None,
    _asked(
        help=f"{', '.join(NETWORKS)}, any of torchvision's, timm:NAME, any of timm's, "
        "or module:function, your own."
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
    source: _Source = None,
    network: _Network = None,
    k: Annotated[int | None, _asked("-k", "--k", help="K, the number of guesses shown.")] = None,
    groups: _Groups = "",
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Train heads on the features of a frozen network with ImageNet's weights; for images. It needs the "
            "extra photos.",
        ),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Side of the images in pixels; 32, with --features 160.", show_default=False
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a training.")] = 20,
    trials: Annotated[int, typer.Option(min=1, help="Search trials per arm.")] = 10,
    seeds: Annotated[int, typer.Option(min=1, help="Confirmation seeds per arm.")] = 5,
) -> None:
    """Write a study file that runs: two losses, searched and compared, on your own images or arrays.

    If some classes are rare, a third loss, balanced_softmax, is added, and all classes count equally. Values that are
    not given are chosen and printed.
    """
    file = _file(name)
    path = absolute(Path(_answer(source, "--from", "Folder of images, or .npz or .pt file")).expanduser())
    if size is not None and not features and path.is_file():
        raise UserError(
            f"--size is for images that are scaled, not for arrays, which stay as they are, got {size}"
        )
    data = data_code(path, size or (PIXELS if features else 32), groups)
    if data.classes < 2:
        raise UserError(f"--from must hold at least 2 classes, got {data.classes} in {path}")
    if features:
        data = on_features(data, size or PIXELS)
    heads = features and network is None
    model = HEADS if heads else network_code(_answer(network, "--network", "Network", data.network))
    guesses = _guesses(k, data.classes)
    _write(file, _text(name, data, model, guesses, epochs=epochs, trials=trials, seeds=seeds))
    for note in data.notes:
        typer.echo(f"topk: {note}", err=True)
    model_chosen = "linear and mlp" if features else data.network
    if chosen := _chosen({"--network": (network, model_chosen), "-k": (k, guesses)}):
        typer.echo(f"chosen: {chosen}")
    if data.tail:
        typer.echo(f"some classes are rare: balanced_softmax is among the losses, macro_top{guesses} selects")
    typer.echo(f"wrote {file}; now: topk plan {name}:study --data {_quoted(data.folder)}")


def _text(
    name: str, data: DataCode, model: NetworkCode, guesses: int, *, epochs: int, trials: int, seeds: int
) -> str:
    """Return the content of a study's file."""
    return _FILE.format(
        title=_in_docstring(
            f"{name}: which loss finds the right one among {guesses} of {data.classes} classes, {data.title}."
        ),
        name=name,
        folder=_in_docstring(_quoted(data.folder)),
        imports=_imports(data, model),
        function=_functions(data, model),
        regime=data.regime(name),
        model=model.model.format(name=name),
        loss=_TAIL_LOSS if data.tail else "",
        metric=_TAIL_METRIC.format(k=guesses) if data.tail else "",
        k=guesses,
        topk=tuple(sorted({1, guesses})) if guesses > 1 else "(1,)",
        epochs=epochs,
        trials=trials,
        seeds=seeds,
        augmentation=data.augmentation,
        flip=_FLIP if "flip" in data.augmentation else "",
    )


def _chosen(options: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the values chosen for missing options; empty if there is a terminal, on which the user was asked."""
    if sys.stdin.isatty():
        return ""
    return ", ".join(f"{option} {taken}" for option, (given, taken) in options.items() if given is None)


def _file(name: str) -> Path:
    """Return the file of a new study; raise ``UserError`` for a name that a module cannot have."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        raise UserError(
            f"NAME must be a name that a Python module can have, of letters, digits and _, got {name!r}"
        )
    file = Path(f"{name}.py")
    if file.exists() or Path(name).exists():
        raise UserError(f"{file if file.exists() else name} exists already: choose another name")
    if name in sys.builtin_module_names or importlib.util.find_spec(name) is not None:
        raise UserError(
            f"NAME must not be that of an installed module, which the file would hide, got {name!r}"
        )
    return file


def _answer(value: Any, option: str, question: str, default: Any = None) -> str:
    """Return the given option, or ask for it; raise ``UserError`` if there is no terminal to ask on."""
    if value is not None:
        return str(value)
    if sys.stdin.isatty():
        return str(typer.prompt(question, default=default))
    if default is None:
        raise UserError(f"{option} must be given if there is no terminal to ask on")
    return str(default)


def _guesses(given: int | None, classes: int) -> int:
    text = _answer(given, "-k", "How many guesses count", min(5, classes - 1))
    if not text.isdigit() or not 1 <= int(text) < classes:
        raise UserError(f"-k must be from 1 to {classes - 1}, below the number of classes, got {text!r}")
    return int(text)


def _imports(data: DataCode, network: NetworkCode) -> str:
    names = sorted({*data.names, "Float", "Loss", "Model", "Recipe", "Regime", "Study"})
    # Sorted as by ruff: plain imports first, ignoring case.
    others = sorted(
        {*data.imports, *network.imports}, key=lambda line: (line.startswith("from"), line.lower())
    )
    ours = [f"from topk_platform import {', '.join(names)}, grid"]
    if data.function:
        ours.append("from topk_platform.data import Dataset, data_folder, from_tensors")
    return "\n".join([*others, *([""] if others else []), *ours, *network.ours])


def _functions(data: DataCode, network: NetworkCode) -> str:
    if data.function and network.function:
        return data.function.rstrip("\n") + "\n" + network.function
    return data.function or network.function


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _in_docstring(text: str) -> str:
    return text.replace("\\", r"\\").replace('"""', r"\"\"\"")


def _write(file: Path, text: str) -> None:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise UserError("--from must have a path and names in UTF-8: rename the folder or file") from error
    try:
        with file.open("xb") as out:  # never overwrites a file
            out.write(content)
    except FileExistsError as error:
        raise UserError(f"{file} exists already: choose another name") from error
    except OSError as error:
        raise UserError(f"{file} cannot be written: {reason(error)}") from error
