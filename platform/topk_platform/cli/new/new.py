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

from topk_platform.cli.consoles import say
from topk_platform.cli.options import nonblank
from topk_platform.cli.planning import what_can_be_seen
from topk_platform.errors import UserError
from topk_platform.specs.checks import absolute

__all__ = ["new"]

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
    from topk_platform.cli.new import own_data, study_file  # noqa: PLC0415 - torch, which neither help nor a bad name needs

    data = own_data.own_data(
        absolute(source), size, groups, labels or "", features=features, drop_copies=drop_copies
    )
    guesses = min(5, math.ceil(data.classes / 2)) if k is None else k
    if not 1 <= guesses < data.classes:
        raise UserError(
            f"-k must be from 1 to {data.classes - 1}, below the number of classes, got {guesses}"
        )
    usual = "linear and mlp" if features else data.network
    model = study_file.HEADS if features and network is None else study_file.model_code(network or usual)
    study_file.write_study(file, data, model, guesses)
    say(data.summary)
    say(what_can_be_seen(data.tested, grouped=bool(groups)))
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
