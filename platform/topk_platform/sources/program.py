"""The definitions that a definition uses, followed name by name through all modules, and a hash of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from topk_platform.sources.acting import CHANGING
from topk_platform.sources.finding import is_ours
from topk_platform.sources.module import Definition, Module
from topk_platform.sources.resolving import WHOLE, Node, Resolver
from topk_platform.sources.scopes import ANY

__all__ = ["Program"]

_ROUNDS = 2  # a definition's hash includes the definitions that are at most this many names away
_SUBCLASSES = "__subclasses__"
_UNUSED = frozenset({"__post_init__", "__repr__", "__str__", "__init_subclass__", "__hash__", "__eq__"})


class Program(Resolver):
    """All modules that can be imported, the definitions that each definition uses, and a hash of each definition.

    The arguments are those of :class:`Resolver`.
    """

    @cached_property
    def _labels(self) -> dict[tuple[Node, int], str]:
        return {}

    def _used(self, node: Node) -> Iterator[tuple[str, tuple[Node | str, ...]]]:
        """Yield the names that a definition uses, each with the definitions that it leads to."""
        module = self.module(node.module)
        if node in self._tables or module is None:
            return
        if node.name == WHOLE:
            yield from self._content(node.module, module)
            return
        definition = self._definition(node)
        if definition is not None:
            used = [(chain, self._resolved(node.module, chain)) for chain in definition.chains]
            yield from used
            blind = definition.blind or any(map(_is_modules, (t for _, targets in used for t in targets)))
            if blind and node.module not in self._seen:
                yield "", (Node(node.module, WHOLE),)

    def _content(self, name: str, module: Module) -> Iterator[tuple[str, tuple[Node | str, ...]]]:
        """Yield the names of a module; imported modules are included only if the module is a package."""
        for own in filter(str.isidentifier, module.definitions):
            yield own, (Node(name, own),)
        for star in module.stars:
            if self.module(star) is not None:
                yield f"*{star}", (Node(star, WHOLE),)
        for own in module.imports:
            targets = self._resolved(name, own)
            if module.is_package or not any(isinstance(t, Node) and t.name == WHOLE for t in targets):
                yield own, targets

    def reached(self, roots: Iterable[Node]) -> set[Node]:
        """Return the roots, the definitions that they use, and the statements that run when their modules are imported.

        Args:
            roots: Definitions; those that do not exist are left out.
        """
        nodes: set[Node] = set()
        waiting = [node for root in roots for node in self._from(root)]
        while waiting:
            nodes |= self._spread(waiting, nodes)
            waiting = [*self._methods(nodes), *self._on_import(nodes)]
            waiting = [node for node in waiting if node not in nodes]
        return nodes

    def _from(self, root: Node) -> Iterator[Node]:
        if root.name.endswith("]") or not root.name:
            yield root
        else:
            yield from (
                n for n in self._attribute(root.module, [root.name], frozenset()) if isinstance(n, Node)
            )

    def _spread(self, waiting: Iterable[Node], known: set[Node]) -> set[Node]:
        nodes: set[Node] = set()
        stack = list(waiting)
        while stack:
            node = stack.pop()
            if node not in nodes and node not in known:
                nodes.add(node)
                stack += (n for _, nodes in self._used(node) for n in nodes if isinstance(n, Node))
        return nodes

    def _methods(self, nodes: set[Node]) -> Iterator[Node]:
        """Yield the methods of thin classes that may be called, because some code uses their name as an attribute."""
        classes = [node for node in nodes if self._is_thin(node) and self._is_class(node)]
        if not classes:
            return
        named = self._attributes(nodes)
        unknown = ANY in self._attributes(
            node for node in nodes if not self._is_thin(node) and node.module not in self._seen
        )
        for node in classes:
            module = self.module(node.module)
            for name in module.definitions if module is not None else ():
                owner, _, method = name.partition(".")
                unnamed = (unknown or method.startswith("__")) and method not in _UNUSED
                if owner == node.name and method and (method in named or unnamed):
                    yield Node(node.module, name)

    def _attributes(self, nodes: Iterable[Node]) -> set[str]:
        return {a for node in nodes if (d := self._definition(node)) is not None for a in d.attributes}

    def _is_class(self, node: Node) -> bool:
        module = self.module(node.module)
        return module is not None and f"{node.name}." in module.definitions

    def _on_import(self, nodes: set[Node]) -> Iterator[Node]:
        """Yield the statements that run, and may act, when the modules of definitions are imported."""
        listing = _SUBCLASSES in self._attributes(nodes)  # a class may be found by its base alone
        for name in self._run(nodes):
            module = self.module(name)
            for number, statement in enumerate(module.statements if module is not None else ()):
                if (listing and statement.bases) or self._acts(name, statement, frozenset()):
                    yield Node(name, f"<{number}>")

    def _run(self, nodes: set[Node]) -> set[str]:
        """Return the imported modules: those of the definitions, and those that users' modules import."""
        run = {node.module for node in nodes}
        local = [
            chain[1:]
            for node in nodes
            if not is_ours(node.module) and (d := self._definition(node)) is not None
            for chain in d.chains
            if chain.startswith("~")
        ]
        return run | self._imported([*run, *local], lambda module: module.runs)

    def imported(self, names: Iterable[str]) -> set[str]:
        """Return users' modules, the modules that they import, in functions too, and the packages that contain them."""
        modules = self._imported(names, lambda module: (*module.runs, *module.imported_later))
        return {name for name in modules if self.module(name) is not None}

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
        """Return whether a statement may change something, by itself, by a call or by the base of a class."""
        if statement.acts:
            return True
        return any(self._call_acts(module, chain, seen) for chain in statement.calls) or any(
            self._watches_subclasses(module, chain, seen) for chain in statement.bases
        )

    def _call_acts(self, module: str, chain: str, seen: frozenset[tuple[str, str]]) -> bool:
        if (module, chain) in seen:
            return False
        targets = self._resolved(module, chain)
        return not targets or any(
            isinstance(target, str)
            or (definition := self._definition(target)) is None
            or _may_change(definition, chain)
            or self._acts(target.module, definition, seen | {(module, chain)})
            for target in targets
        )

    def _watches_subclasses(self, module: str, chain: str, seen: frozenset[tuple[str, str]]) -> bool:
        """Return whether deriving from a class runs code of that class, because it has an ``__init_subclass__``."""
        for target in self._resolved(module, chain):
            if not isinstance(target, Node) or (module, chain) in seen:
                continue
            known, definition = self.module(target.module), self._definition(target)
            if known is not None and f"{target.name}.__init_subclass__" in known.definitions:
                return True
            bases = definition.bases if definition is not None else ()
            if any(self._watches_subclasses(target.module, b, seen | {(module, chain)}) for b in bases):
                return True
        return False

    def meaning(self, node: Node, rounds: int = _ROUNDS) -> str:
        """Return a hash of a definition and of the definitions that its names lead to."""
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
        """Return a hash of definitions; it does not depend on the modules that they are in."""
        meanings: set[str] = set()
        orders: dict[str, list[Node]] = {}
        for node in nodes:
            if node.name.startswith("<") and not is_ours(node.module):
                orders.setdefault(node.module, []).append(node)
            else:
                meanings.add(self.meaning(node))
        meanings |= {self._in_order(statements) for statements in orders.values()}
        return hashlib.sha256("".join(sorted(meanings)).encode()).hexdigest()[:12]

    def _in_order(self, statements: Iterable[Node]) -> str:
        """Return the meanings of a module's statements in their order, which may matter, as may how often one runs."""
        return "".join(
            self.meaning(node) for node in sorted(statements, key=lambda node: int(node.name[1:-1]))
        )

    def digests(self, nodes: Iterable[Node]) -> dict[str, str]:
        """Return the hash of each definition's own code, by its full name."""
        definitions = (
            (str(node), self._definition(node)) for node in sorted(nodes) if node not in self._tables
        )
        return {name: definition.digest for name, definition in definitions if definition is not None}


def _is_modules(target: Node | str) -> bool:
    """Return whether a name leads to ``sys.modules``, under whatever name it is imported."""
    return isinstance(target, str) and f"{target}.".startswith("sys.modules.")


def _may_change(called: Definition, chain: str) -> bool:
    """Return whether a call of a method may change the object that has it, such as a table that lists functions."""
    _, *names = chain.split(".")
    return bool(names) and (names[-1] in CHANGING or (called.is_value and bool(called.calls)))


def _without_module(chain: str) -> str:
    """Return a name without its module, because a function may import the same definition from another module."""
    return chain.partition(":")[2] if chain.startswith("=") else chain
