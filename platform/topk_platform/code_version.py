"""A hash of the code that an arm's trials execute, so that no table mixes the results of two programs."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from topk_platform.references import is_reference
from topk_platform.sources import (
    Node,
    Program,
    Source,
    find_source,
    find_spec,
    is_followed,
    is_installed,
    is_ours,
    keep,
    top_of,
)
from topk_platform.specs import FEATURES, Arm, OptunaSampler, Study

__all__ = [
    "Code",
    "Own",
    "Part",
    "code_definitions",
    "code_parts",
    "code_version",
    "code_versions",
    "loaded_version",
    "named",
    "platform_version",
    "references",
    "user_modules",
]

_LOSSES = Node("topk_platform.training.loss_table", "LOSSES")
_MODELS = Node("topk_platform.models", "MODELS")
_DATASETS = Node("topk_platform.data.loading", "DATASETS")
_CONDITIONS = Node("topk_platform.data.conditions", "_CONDITIONS")
_ADDITIONS = {  # tables of what a recipe may add, by kind
    "optimizer": Node("topk_platform.training.steps.optim", "OPTIMIZERS"),
    "learner": Node("topk_platform.training.learners", "LEARNERS"),
}
_TABLES = (_LOSSES, _MODELS, _DATASETS, _CONDITIONS, *_ADDITIONS.values())
# The classes of a trial's parts. Only those of their methods that are called count.
# Conditions that were added later count for the arms that have them; the first four count for every arm.
_SPECS = (
    *("Arm", "Augmentation", "LabelNoise", "LongTail", "Loss", "Model", "Numerics", "PerClass", "Protocol"),
    *("Recipe", "Regime", "Schedule", "Setting", "TrainFraction", "Trial"),
)
_LOOP = (
    Node("topk_platform.training.run", "run_trials"),
    *(Node("topk_platform.specs", name) for name in _SPECS),
)
_LOOKED_UP = (
    "topk_platform.references",
)  # arms name everything that is looked up there, so it is a root already
_PLATFORM_PARTS = ("data", "models", "training", "calibration.py", "metrics.py", "streams.py")


class Part(NamedTuple):
    """Some of the definitions that an arm's trials execute; arms share parts.

    Args:
        version: A hash of these definitions and of all that they refer to.
        definitions: The hash of each definition's own code, by full name.
    """

    version: str
    definitions: Mapping[str, str]


def code_version(arm: Arm) -> str:
    """Return the hash of the code that an arm's trials execute.

    The hash covers the definitions of its loss, model, dataset and conditions, and all functions, classes and constants
    that these and the training loop use. They are followed name by name through this package's modules and the user's.
    Comments, docstrings, annotations and formatting do not count. Other definitions do not count either, such as
    another loss, or the study in the file of a user's loss. Code that runs when a module is imported counts if it may
    change something.

    If the arm refers to an installed package, all Python files of this package count. Studies, tables, searches and
    this module do not count, because they change no trial's result. A sampler that an arm refers to counts, because it
    chooses the values of trials.
    """
    return Code().version(arm)


def code_versions(study: Study) -> dict[str, str]:
    """Return each arm's code version, by arm identity; each of the user's modules is read once."""
    code = Code()
    return {study.arm_id(arm): code.version(arm) for arm in study.arms}


def _version(parts: Iterable[Part]) -> str:
    return hashlib.sha256("".join(sorted({part.version for part in parts})).encode()).hexdigest()[:12]


def code_parts(study: Study) -> dict[str, list[Part]]:
    """Return the parts of each code version of a study's arms, which show what definition has changed."""
    code = Code()
    return {_version(parts): parts for arm in study.arms if (parts := code.parts(_entries(arm)))}


def code_definitions(arm: Arm) -> dict[str, str]:
    """Return the definitions behind an arm's code version by full name, each with a hash of its own."""
    return {n: digest for part in Code().parts(_entries(arm)) for n, digest in part.definitions.items()}


class Own:
    """This package's sources; each is read once, when it is first needed.

    Args:
        find: A function that returns the source of a module, or None.
    """

    def __init__(self, find: Callable[[str], Source | None] = find_source) -> None:
        self.program = Program(_TABLES, ("topk_platform.specs.",), _LOOKED_UP, find)
        self._known: dict[tuple[Node, ...], Part] = {}

    def part(self, entries: tuple[Node, ...] = _LOOP) -> Part:
        """Return the definitions ``entries``, by default the training loop, and all definitions that they use."""
        if entries not in self._known:
            self._known[entries] = _part_of(self.program, entries)
        return self._known[entries]


class Code:
    """The sources of the user's modules as they are now, together with this package's.

    Args:
        own: This package's sources.
    """

    def __init__(self, own: Own | None = None) -> None:
        self._own = _own() if own is None else own
        self._program = Program(seen=_LOOKED_UP, base=self._own.program)
        self._known: dict[Node, Part] = {}

    def version(self, arm: Arm) -> str:
        """Return an arm's code version."""
        return _version(self.parts(_entries(arm)))

    def parts(self, entries: Iterable[Node]) -> list[Part]:
        """Return the part of the training loop and the parts of some definitions."""
        return [self._own.part(), *map(self._part, entries)]

    def _part(self, entry: Node) -> Part:
        if is_ours(entry.module):
            return self._own.part((entry,))
        if entry not in self._known:
            self._known[entry] = self._of_users(entry)
        return self._known[entry]

    def _of_users(self, entry: Node) -> Part:
        top = top_of(entry.module)
        if not is_followed(top):
            return Part(_installed_sources(top)[:12], {top: _installed_sources(top)[:12]})
        return _part_of(self._program, [entry])


def _entries(arm: Arm) -> list[Node]:
    """Return the definitions that an arm names."""
    names = (_DATASETS, arm.regime.dataset), (_MODELS, arm.model.name), (_LOSSES, arm.loss.name)
    given = [Node(*name.split(":", 1)) for name in references(arm)]
    ours = [Node(table.module, f"{table.name}[{name}]") for table, name in names if not is_reference(name)]
    kinds = dict.fromkeys(type(condition).__name__ for condition in arm.regime.conditions)
    effects = [Node(_CONDITIONS.module, f"{_CONDITIONS.name}[{kind}]") for kind in kinds]
    added = [(_ADDITIONS[kind], name) for kind, name in arm.additions]
    return [
        *given,
        *ours,
        *effects,
        *(Node(table.module, f"{table.name}[{name}]") for table, name in added),
        *(Node("topk_platform.specs", kind) for kind in kinds if kind not in _SPECS),
    ]


@cache
def _own() -> Own:
    return Own()


def _part_of(program: Program, entries: Iterable[Node]) -> Part:
    reached = program.reached(entries)
    keep()
    return Part(program.version(reached), program.digests(reached))


def platform_version() -> str:
    """Return a hash of every byte of the losses and of the platform's data, models and training.

    Machines with the same hash execute the same code for every arm.
    """
    return _bytes_of(tuple(_own_roots()))[:12]


def loaded_version(arm: Arm) -> str:
    """Return the code version that this process runs, computed once, right after its modules were imported.

    A process keeps what it has imported, so files that change later have no effect on it. A module that cannot be
    imported counts by its file; the error is raised where the module is used.
    """
    return _loaded_version(tuple(_entries(arm)))


@cache
def _loaded_version(entries: tuple[Node, ...]) -> str:
    for name in dict.fromkeys(entry.module for entry in entries if not is_ours(entry.module)):
        with suppress(Exception):  # the error is raised where the module is used
            importlib.import_module(name)
    return _version(Code().parts(entries))  # after the imports, to notice a file that changes in between


def user_modules(arm: Arm) -> dict[str, Path]:
    """Return the files of the user's modules that an arm refers to, and of all that these import, by module name.

    Imports in functions are followed too, and the packages that contain a module are included. Modules of the standard
    library, of installed packages and of ``topk_losses``, ``topk_platform`` and ``topk_studies`` are left out. So are
    missing modules, and modules that are imported by a computed name. Nothing is imported to find the files.
    """
    modules = sorted({name.partition(":")[0] for name in references(arm)})
    sources = map(find_source, Program().imported(modules))
    return {source.name: source.path for source in sources if source is not None}


def references(arm: Arm) -> tuple[str, ...]:
    """Return the references, ``package.module:attribute``, of an arm, see :func:`named`."""
    return tuple(filter(is_reference, named(arm).values()))


def named(arm: Arm) -> dict[str, str]:
    """Return the names of an arm's data, model, loss and sampler, by kind; some may be references.

    The data of features are a dataset of images and a backbone.
    """
    names = {"dataset": arm.regime.dataset, "model": arm.model.name, "loss": arm.loss.name}
    if arm.regime.dataset == FEATURES:
        options = {"dataset of images": "of", "backbone": "backbone"}
        names |= {k: str(arm.regime.options[o]) for k, o in options.items() if o in arm.regime.options}
    if arm.is_searched and isinstance(arm.protocol.sampler, OptunaSampler):
        names["sampler"] = arm.protocol.sampler.reference
    return names


def _own_roots() -> list[Path]:
    here = Path(__file__).parent
    losses = Path(str(find_spec("topk_losses").origin)).parent  # type: ignore[union-attr]
    return [losses, *(here / part for part in _PLATFORM_PARTS)]


@cache
def _installed_sources(top: str) -> str:
    spec = find_spec(top)
    path = None if spec is None else next(iter(spec.submodule_search_locations or ()), spec.origin)
    return _bytes_of((Path(path),)) if path is not None and is_installed(Path(path)) else ""


@cache
def _bytes_of(roots: tuple[Path, ...]) -> str:
    state = hashlib.sha256()
    for root in roots:
        for path in _files(root):
            state.update(path.relative_to(root.parent).as_posix().encode())
            state.update(path.read_bytes())
    return state.hexdigest()


def _files(root: Path) -> list[Path]:
    """Return the sources of a package, or of a part of it, in order; modules for tests are left out."""
    files = sorted([root] if root.is_file() else root.rglob("*.py"))
    return [path for path in files if "testing" not in path.relative_to(root.parent).parts]
