"""Studies by name: of ``topk_studies``, of installed packages, and any other by ``package.module:attribute``."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from topk_platform.errors import UserError, as_user_error, unknown_name
from topk_platform.records.storage.store import MARK, Store
from topk_platform.references import check_arguments, import_reference, is_reference, look_up
from topk_platform.specs import STANDINS, Study, images_of
from topk_platform.specs.checks import absolute

__all__ = [
    "as_reference",
    "find_modules_here",
    "findings_alone",
    "findings_files",
    "known_studies",
    "load_study",
    "others",
    "requested_study",
    "smoke_notice",
    "smoke_study",
]


def find_modules_here() -> None:
    """Make modules of the current folder importable, as with ``python -m``."""
    if (here := str(absolute("."))) not in sys.path:
        sys.path.insert(0, here)


def known_studies() -> Mapping[str, Callable[[], Study]]:
    """Return the studies by name: those of ``topk_studies``, and those that other packages register as entry points.

    Raises:
        UserError: if a package registers a study with the name of another one.
    """
    table: Mapping[str, Callable[[], Study]] = importlib.import_module("topk_studies").STUDIES
    brought = {name: partial(load_study, reference) for name, reference in others("studies").items()}
    if twice := sorted(brought.keys() & table.keys()):
        raise UserError(
            f"an installed package registers a study named {twice[0]!r}, and this name is taken: uninstall the package"
        )
    return {**table, **brought}


def findings_alone() -> list[str]:
    """Return the names of the shipped findings whose study has no definition."""
    known = known_studies()
    return [name for name in findings_files() if name not in known]


def findings_files() -> Mapping[str, Path]:
    """Return the files of the shipped findings by study name."""
    files: Mapping[str, Path] = importlib.import_module("topk_studies").findings_files()
    return files


def others(kind: str) -> dict[str, str]:
    """Return what installed packages register, as ``package.module:attribute`` by name; nothing is imported.

    Args:
        kind: ``"studies"``, ``"losses"`` or ``"regimes"``: a package's entry points of the group ``topk.KIND``.
    """
    points = importlib.metadata.entry_points(group=f"topk.{kind}")
    return {point.name: point.value for point in sorted(points, key=lambda point: point.name)}


def as_reference(name: str) -> str:
    """Return the name of a study of which the file was named.

    ``birds.py:study`` is ``birds:study``, and ``birds.py`` is the only study in it; other names stay as they are.

    Raises:
        UserError: if the file is not below this folder, cannot be imported, or has no study or several.
    """
    file, _, attribute = name.partition(":")
    if not file.endswith(".py"):
        return name
    if not Path(file).is_file() or not all(
        map(str.isidentifier, (parts := Path(file).with_suffix("").parts))
    ):
        raise UserError(
            f"a file with a study must be below this folder, as birds.py or lab/birds.py, got {name!r}"
        )
    module_name = ".".join(parts)
    if attribute:
        return f"{module_name}:{attribute}"
    import_reference(f"{module_name}:__name__")
    module = sys.modules[module_name]
    made = [known for known, value in vars(module).items() if isinstance(value, Study)]
    names = made or _studies_in(module)
    if len(names) != 1:
        several = f"{len(names)} studies ({', '.join(names)})" if names else "no study"
        raise UserError(f"{file} has {several}: name one of it as {file}:NAME")
    return f"{module_name}:{names[0]}"


def load_study(name: str, store: str | None = None) -> Study:
    """Return the study with this name; a reference may name a ``Study`` or a function that returns one.

    Args:
        name: Its name, or ``package.module:attribute``.
        store: The store of its results; if the study is unknown, the error says whether the store holds results of it.

    Raises:
        UserError: if there is no such study, or the reference names something else.
    """
    if "/" in name or os.sep in name:
        raise UserError(f"a study is a name or package.module:attribute, not a path, got {name!r}")
    target = _referred(name) if is_reference(name) else _known(name, store)
    study = _made(name, target) if callable(target) else target
    if not isinstance(study, Study):
        raise UserError(
            f"{name!r} must name a Study or a function that returns one, got {type(study).__name__}"
        )
    return dataclasses.replace(study, reference=name) if is_reference(name) else study


def requested_study(
    name: str,
    smoke: bool,
    store: str | None = None,
    searches: int | None = None,
    trials: int | None = None,
    seeds: int | None = None,
    *,
    address: str | None = None,
    notice_to: Console | None = None,
) -> Study:
    """Return the study with this name, or its smoke run, with the requested budget.

    Args:
        name: As :func:`load_study` takes it.
        smoke: Whether to return the smoke run.
        address: The cluster on which it will run; None for this machine.
        notice_to: Where to print how a smoke run differs; None to print nothing.
        store: As :func:`load_study` takes it.
        searches: How often each arm is searched; by default as the study says.
        trials: Search trials per arm, over all its searches; by default as the study says.
        seeds: Seeds per arm, over all its searches; by default as the study says.

    Raises:
        UserError: as for :func:`load_study`.
    """
    study = load_study(name, store)
    if not smoke:
        return study.with_budget(trials, seeds, searches)
    small = smoke_study(study, here=address is None)
    if notice_to is not None and (notice := smoke_notice(study, small)):
        notice_to.print(notice, markup=False, highlight=False)
    return small.with_budget(trials, seeds, searches)


def _referred(name: str) -> Any:
    """Return what a reference names; if its module lacks it, the error suggests the studies of the module."""
    module_name, _, attribute = name.partition(":")
    try:
        return import_reference(name)
    except UserError:
        module = sys.modules.get(module_name)  # None if it cannot be imported, which is another error
        known = [] if module is None or hasattr(module, attribute) else _studies_in(module)
        if not known:
            raise
        raise unknown_name(f"study: module {module_name!r} has no", attribute, known) from None


def _studies_in(module: ModuleType) -> list[str]:
    """Return the names of a module's studies, and of its own functions, each of which may return one."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    made = [name for name, value in public.items() if isinstance(value, Study)]
    own = [name for name, value in public.items() if getattr(value, "__module__", "") == module.__name__]
    return [*made, *(name for name in own if inspect.isfunction(public[name]))]


def _known(name: str, store: str | None) -> Callable[[], Study]:
    known = known_studies()  # once, for it looks through all installed packages
    if name not in known and Path(f"{name}.py").is_file():
        return partial(load_study, as_reference(f"{name}.py"))
    if name not in known and name in findings_files():
        raise UserError(
            f"study {name!r} has no definition here, only findings: `topk table {name}` prints them"
        )
    if name not in known and store is not None and _is_held(name, store):
        raise UserError(
            f"store {store!r} holds results of study {name!r}, whose definition is not known here: go to its folder, "
            "and name it as FILE.py or package.module:attribute"
        )
    return look_up("study", name, known)


def _is_held(name: str, store: str) -> bool:
    with suppress(UserError):  # if the store is wrong too, the error about the name comes first
        return Store.open(store).at(name).exists(MARK)
    return False


def _made(name: str, function: Callable[..., Any]) -> Any:
    check_arguments("study", name, function, {})
    with as_user_error(f"study {name}"):
        return function()


def smoke_study(study: Study, here: bool) -> Study:
    """Return the study's smoke run; it uses the CPU if the study needs a GPU and this machine has none.

    Args:
        study: The study.
        here: Whether it will run on this machine.
    """
    small = study.smoke()
    if study.device == "cpu" or not here:
        return small
    import torch  # noqa: PLC0415 - takes a second, and studies for the CPU do not need it

    if torch.cuda.is_available():
        return small
    return dataclasses.replace(small, device="cpu")


def smoke_notice(study: Study, small: Study) -> str:
    """Return a line that says how a smoke run differs from the study; empty if it does not."""
    names = dict.fromkeys(name for arm in study.arms if (name := images_of(arm.regime)) in STANDINS)
    parts = [f"small stand-ins of {', '.join(names)} in place of the data"] if names else []
    parts += ["the CPU in place of a GPU"] if small.device != study.device else []
    return f"Smoke run: {', and '.join(parts)}." if parts else ""
