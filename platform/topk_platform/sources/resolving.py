"""Resolving names: the definitions that a name leads to, through all modules, without importing any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from topk_platform.sources.finding import Source, find_source, is_followed, is_namespace, is_ours, top_of
from topk_platform.sources.module import Definition, Module
from topk_platform.sources.remembering import read_module

__all__ = ["WHOLE", "Node", "Resolver"]

WHOLE = ""
"""The name of a node that stands for a whole module."""


class Node(NamedTuple):
    """A definition.

    Args:
        module: The module that contains the definition.
        name: The definition's name in the module: ``CLASS.METHOD`` for a method, ``NAME[KEY]`` for an entry of a
            dictionary, ``<N>`` for a statement that runs on import, and empty for the whole module.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


class Resolver:
    """All modules that can be imported, and the definitions that names in them lead to.

    Each module's source is read once, when it is first needed.

    Args:
        tables: Dictionaries that are not followed, because their entries are roots of their own.
        thin: Packages with classes whose methods count only if some code uses their names.
        seen: Modules that look up objects by name at run time. All these objects are already roots.
        find: Returns the source of a module.
        base: A resolver with which this resolver shares our own modules, because they do not change.
    """

    def __init__(
        self,
        tables: Iterable[Node] = (),
        thin: Sequence[str] = (),
        seen: Sequence[str] = (),
        find: Callable[[str], Source | None] = find_source,
        base: Resolver | None = None,
    ) -> None:
        self._tables, self._thin, self._seen = frozenset(tables), tuple(thin), frozenset(seen)
        self._find, self._base = find, base
        self._modules: dict[str, Module | None] = {}
        self._tops: dict[str, bool] = {}
        self._targets: dict[tuple[str, str], tuple[Node | str, ...]] = {}

    def module(self, name: str) -> Module | None:
        """Return a module; None if its source is not followed."""
        if self._base is not None and is_ours(name):
            return self._base.module(name)
        if name not in self._modules:
            source = self._find(name) if self._is_followed(name) else None
            self._modules[name] = None if source is None else read_module(source)
        return self._modules[name]

    def _is_followed(self, name: str) -> bool:
        top = top_of(name)
        if top not in self._tops:
            self._tops[top] = is_followed(top)
        return self._tops[top]

    def _definition(self, node: Node) -> Definition | None:
        module = self.module(node.module)
        if module is None:
            return None
        if node.name.startswith("<"):
            return module.statements[int(node.name[1:-1])]
        if self._is_thin(node) and f"{node.name}." in module.definitions:
            return module.definitions[f"{node.name}."]
        return module.definitions.get(node.name)

    def _is_thin(self, node: Node) -> bool:
        return node.module.startswith(self._thin)

    def _resolved(self, module: str, chain: str) -> tuple[Node | str, ...]:
        """Return the definitions that a name of a module leads to; a name that is not followed is a string."""
        if (module, chain) not in self._targets:
            self._targets[module, chain] = tuple(dict.fromkeys(self._resolve(module, chain)))
        return self._targets[module, chain]

    def _resolve(self, module: str, chain: str) -> Iterator[Node | str]:
        if chain.startswith("~"):
            return
        if chain.startswith("="):
            name, _, rest = chain[1:].partition(":")
            yield from self._attribute(name, rest.split(".") if rest else [], frozenset())
        else:
            root, *names = chain.split(".")
            yield from self._global(module, root, names, frozenset())

    def _global(
        self, module: str, name: str, rest: list[str], seen: frozenset[tuple[str, str]]
    ) -> Iterator[Node | str]:
        known = self.module(module)
        if known is None or (module, name) in seen:
            return
        seen |= {(module, name)}
        if name in known.definitions:
            yield Node(module, name)
        targets = known.imports.get(name, ())
        missing = not targets and name not in known.definitions
        if missing or not is_ours(module):  # in users' modules, an import with `*` may also replace a name
            # A name may come from any library that is imported with `*`.
            stars = [s for s in known.stars if self._binds(s, name) or (missing and self.module(s) is None)]
            targets = (*targets, *(f"{star}:{name}" for star in stars))
        if not targets and "__getattr__" in known.definitions:
            targets = known.lazy.get(name, ())
        for target in targets:
            base, _, attribute = target.partition(":")
            yield from self._attribute(base, [attribute, *rest] if attribute else rest, seen)

    def _attribute(
        self, module: str, names: list[str], seen: frozenset[tuple[str, str]]
    ) -> Iterator[Node | str]:
        known = self.module(module)
        if not names:
            yield Node(module, WHOLE) if known is not None else module
        elif known is not None and self._binds(module, names[0]) and (module, names[0]) not in seen:
            yield from self._global(module, names[0], names[1:], seen)
        elif self._is_package(f"{module}.{names[0]}") or self.module(f"{module}.{names[0]}") is not None:
            yield from self._attribute(f"{module}.{names[0]}", names[1:], seen)
        elif known is not None:
            yield Node(module, WHOLE)  # the name is not visible in the syntax
        else:
            yield ".".join((module, *names))

    def _binds(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> bool:
        known = self.module(module)
        if known is None or module in seen:  # modules may import one another with `*`
            return False
        lazy = known.lazy if "__getattr__" in known.definitions else {}
        seen |= {module}
        return name in known.names or name in lazy or any(self._binds(s, name, seen) for s in known.stars)

    def _is_package(self, name: str) -> bool:
        return not is_ours(name) and self._is_followed(name) and is_namespace(name)
