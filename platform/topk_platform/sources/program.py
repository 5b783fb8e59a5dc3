"""What a definition reaches, name by name through all modules, and a hash of what that means."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from topk_platform.sources.finding import Source, find_source, is_followed, is_namespace, is_ours, top_of
from topk_platform.sources.module import Definition, Module
from topk_platform.sources.remembering import read_module
from topk_platform.sources.scopes import ANY

__all__ = ["Node", "Program"]

_ROUNDS = 2  # how far the meaning of a definition includes which definitions its names lead to
_WHOLE = ""  # the name of a node that stands for all of a module
_UNUSED = frozenset({"__post_init__", "__repr__", "__str__", "__init_subclass__", "__hash__", "__eq__"})


class Node(NamedTuple):
    """A definition.

    Args:
        module: Its module.
        name: Its name there; a class's method is ``CLASS.METHOD``, an entry of a dictionary ``NAME[KEY]``, what runs
            on import ``<N>``, and all of the module is empty.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module


class Program:
    """All modules that can be imported, as their sources are when each is first looked at.

    Args:
        tables: Dictionaries that count only by their entries: they are not followed.
        thin: Packages of classes of which only those methods count that are named somewhere.
        seen: Modules whose dynamic look-ups lead to what is given as roots.
        find: Returns where a module is.
        base: A program whose modules are taken where it has them, for they do not change.
    """

    def __init__(
        self,
        tables: Iterable[Node] = (),
        thin: Sequence[str] = (),
        seen: Sequence[str] = (),
        find: Callable[[str], Source | None] = find_source,
        base: Program | None = None,
    ) -> None:
        self._tables, self._thin, self._seen = frozenset(tables), tuple(thin), frozenset(seen)
        self._find, self._base = find, base
        self._modules: dict[str, Module | None] = {}
        self._tops: dict[str, bool] = {}
        self._labels: dict[tuple[Node, int], str] = {}
        self._targets: dict[tuple[str, str], tuple[Node | str, ...]] = {}

    def module(self, name: str) -> Module | None:
        """Return a module, None of one whose source is not followed."""
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

    # What names lead to

    def _resolved(self, module: str, chain: str) -> tuple[Node | str, ...]:
        """Return the definitions that a name of a module leads to, and the names of what is not followed."""
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
        if not targets and name not in known.definitions:
            stars = [star for star in known.stars if self._binds(star, name)]
            targets = tuple(f"{star}:{name}" for star in stars)
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
            yield Node(module, _WHOLE) if known is not None else module
        elif known is not None and self._binds(module, names[0]) and (module, names[0]) not in seen:
            yield from self._global(module, names[0], names[1:], seen)
        elif self._is_package(f"{module}.{names[0]}") or self.module(f"{module}.{names[0]}") is not None:
            yield from self._attribute(f"{module}.{names[0]}", names[1:], seen)
        elif known is not None:
            yield Node(module, _WHOLE)  # something that no syntax shows
        else:
            yield ".".join((module, *names))

    def _binds(self, module: str, name: str) -> bool:
        known = self.module(module)
        if known is None:
            return False
        lazy = known.lazy if "__getattr__" in known.definitions else {}
        return name in known.names or name in lazy or any(self._binds(star, name) for star in known.stars)

    def _is_package(self, name: str) -> bool:
        return not is_ours(name) and self._is_followed(name) and is_namespace(name)

    # What is reached

    def _used(self, node: Node) -> Iterator[tuple[str, tuple[Node | str, ...]]]:
        """Yield the names that a definition uses, each with what it leads to."""
        module = self.module(node.module)
        if node in self._tables or module is None:
            return
        if node.name == _WHOLE:
            yield from self._content(node.module, module)
            return
        found = self._definition(node)
        if found is not None:
            yield from ((chain, self._resolved(node.module, chain)) for chain in found.chains)
            if found.blind and node.module not in self._seen:
                yield "", (Node(node.module, _WHOLE),)

    def _content(self, name: str, module: Module) -> Iterator[tuple[str, tuple[Node | str, ...]]]:
        """Yield the names that a module holds; unless it is a package, the modules that it imports are not of them."""
        for own in filter(str.isidentifier, module.definitions):
            yield own, (Node(name, own),)
        for own in module.imports:
            targets = self._resolved(name, own)
            if module.is_package or not any(isinstance(t, Node) and t.name == _WHOLE for t in targets):
                yield own, targets

    def reached(self, roots: Iterable[Node]) -> set[Node]:
        """Return the definitions that some reach, themselves included, with what runs when their modules are imported.

        Args:
            roots: Definitions, of which those that do not exist are left out.
        """
        found: set[Node] = set()
        waiting = [node for root in roots for node in self._from(root)]
        while waiting:
            found |= self._spread(waiting, found)
            waiting = [*self._methods(found), *self._on_import(found)]
            waiting = [node for node in waiting if node not in found]
        return found

    def _from(self, root: Node) -> Iterator[Node]:
        if root.name.endswith("]") or not root.name:
            yield root
        else:
            yield from (
                n for n in self._attribute(root.module, [root.name], frozenset()) if isinstance(n, Node)
            )

    def _spread(self, waiting: Iterable[Node], known: set[Node]) -> set[Node]:
        found: set[Node] = set()
        stack = list(waiting)
        while stack:
            node = stack.pop()
            if node not in found and node not in known:
                found.add(node)
                stack += (n for _, nodes in self._used(node) for n in nodes if isinstance(n, Node))
        return found

    def _methods(self, found: set[Node]) -> Iterator[Node]:
        """Yield the methods of thin classes that may be called: those whose name is an attribute's somewhere."""
        classes = [node for node in found if self._is_thin(node) and self._is_class(node)]
        if not classes:
            return
        named = self._attributes(found)
        unknown = ANY in self._attributes(
            node for node in found if not self._is_thin(node) and node.module not in self._seen
        )
        for node in classes:
            module = self.module(node.module)
            for name in module.definitions if module is not None else ():
                owner, _, method = name.partition(".")
                dunder = method.startswith("__") and method not in _UNUSED
                if owner == node.name and method and (method in named or dunder or unknown):
                    yield Node(node.module, name)

    def _attributes(self, nodes: Iterable[Node]) -> set[str]:
        return {a for node in nodes if (d := self._definition(node)) is not None for a in d.attributes}

    def _is_class(self, node: Node) -> bool:
        module = self.module(node.module)
        return module is not None and f"{node.name}." in module.definitions

    def _on_import(self, found: set[Node]) -> Iterator[Node]:
        """Yield the statements that run, and may act, when the modules of definitions are imported."""
        for name in self._run(found):
            module = self.module(name)
            for place, statement in enumerate(module.statements if module is not None else ()):
                if self._acts(name, statement, frozenset()):
                    yield Node(name, f"<{place}>")

    def _run(self, found: set[Node]) -> set[str]:
        """Return the modules that are imported: of ours those of the definitions, of a user's all that these import."""
        run = {node.module for node in found}
        local = [
            chain[1:]
            for node in found
            if not is_ours(node.module) and (d := self._definition(node)) is not None
            for chain in d.chains
            if chain.startswith("~")
        ]
        return run | self._imported([*run, *local], lambda module: module.runs)

    def imported(self, names: Iterable[str]) -> set[str]:
        """Return users' modules and all that these import, in functions as well, with the packages they lie in."""
        found = self._imported(names, lambda module: (*module.runs, *module.imported_later))
        return {name for name in found if self.module(name) is not None}

    def _imported(self, names: Iterable[str], of: Callable[[Module], Iterable[str]]) -> set[str]:
        seen: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name and name not in seen and not is_ours(name):
                seen.add(name)
                module = self.module(name)
                waiting += [*(of(module) if module is not None else ()), name.rpartition(".")[0]]
        return seen

    def _acts(self, module: str, statement: Definition, seen: frozenset[tuple[str, str]]) -> bool:
        """Return whether a statement may change something: what it calls is asked, and the classes it derives from."""
        if statement.acts:
            return True
        return any(self._call_acts(module, chain, seen) for chain in statement.calls) or any(
            self._is_told_of_classes(module, chain, seen) for chain in statement.bases
        )

    def _call_acts(self, module: str, chain: str, seen: frozenset[tuple[str, str]]) -> bool:
        if (module, chain) in seen:
            return False
        targets = self._resolved(module, chain)
        return not targets or any(
            isinstance(target, str)
            or (definition := self._definition(target)) is None
            or self._acts(target.module, definition, seen | {(module, chain)})
            for target in targets
        )

    def _is_told_of_classes(self, module: str, chain: str, seen: frozenset[tuple[str, str]]) -> bool:
        """Return whether a class is told of the classes that derive from it, by ``__init_subclass__``."""
        for target in self._resolved(module, chain):
            if not isinstance(target, Node) or (module, chain) in seen:
                continue
            known, definition = self.module(target.module), self._definition(target)
            if known is not None and f"{target.name}.__init_subclass__" in known.definitions:
                return True
            bases = definition.bases if definition is not None else ()
            if any(self._is_told_of_classes(target.module, b, seen | {(module, chain)}) for b in bases):
                return True
        return False

    # What it means

    def meaning(self, node: Node, rounds: int = _ROUNDS) -> str:
        """Return a hash of what a definition means: its own, and those of the definitions that its names lead to."""
        known = self._labels.get((node, rounds))
        if known is None:
            known = self._labels[node, rounds] = self._meaning(node, rounds)
        return known

    def _meaning(self, node: Node, rounds: int) -> str:
        if node in self._tables:
            return "table"
        definition = self._definition(node)
        own = "whole" if definition is None else definition.digest
        if not rounds:
            return own
        state = hashlib.sha256(own.encode())
        for chain, targets in sorted(self._used(node)):
            named = [t if isinstance(t, str) else self.meaning(t, rounds - 1) for t in targets]
            state.update(f"\0{_without_module(chain)}={','.join(named)}".encode())
        return state.hexdigest()[:16]

    def version(self, nodes: Iterable[Node]) -> str:
        """Return a hash of what definitions mean, wherever they lie."""
        meanings = sorted({self.meaning(node) for node in nodes})
        return hashlib.sha256("".join(meanings).encode()).hexdigest()[:12]

    def digests(self, nodes: Iterable[Node]) -> dict[str, str]:
        """Return, by full name, a hash of each definition apart from what its names lead to."""
        found = ((str(node), self._definition(node)) for node in sorted(nodes) if node not in self._tables)
        return {name: definition.digest for name, definition in found if definition is not None}


def _without_module(chain: str) -> str:
    """A name as it stands in the source, for an import in a function may lead elsewhere and mean the same."""
    return chain.partition(":")[2] if chain.startswith("=") else chain
