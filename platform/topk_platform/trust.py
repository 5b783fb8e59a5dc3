"""The code that files from other people may name: this package's, and modules that the user trusts."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from topk_platform.errors import UserError
from topk_platform.references import is_reference
from topk_platform.specs import STANDINS, Arm, Study
from topk_platform.specs.study.smoke import standin_reference
from topk_platform.user_code import files_of
from topk_platform.versions import named_by, references

__all__ = ["Trust"]

_MODULE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_VARIABLE = "TOPK_TRUST"
_SHIPPED = frozenset(map(standin_reference, STANDINS))  # smoke runs refer to our own code by reference


@dataclass(frozen=True)
class Trust:
    """The code that a file from other people may name.

    Exported networks and rows of a ledger name datasets, networks and losses. A name in our tables is always
    allowed. A reference, ``package.module:attribute``, could import any module and call anything in it. It is refused
    unless its module or a package around it is trusted.

    Args:
        modules: The modules that are trusted, with all their submodules.
        exactly: Single references that are trusted.

    Example:
        >>> trust = Trust.of(["my_lab"])
        >>> trust.check("net", {"model": "mlp", "loss": "my_lab.losses:mine"})
        >>> trust.check("net", {"model": "os:system"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        topk_platform.errors.UserError: net: its model is 'os:system', which is no code of this package; ...
    """

    modules: tuple[str, ...] = ()
    exactly: frozenset[str] = frozenset()

    @classmethod
    def of(cls, modules: Iterable[str]) -> Trust:
        """Return the trust in modules, given by name.

        Raises:
            UserError: if one of the names cannot be that of a module.
        """
        names = (modules,) if isinstance(modules, str) else tuple(modules)
        for name in names:
            if not isinstance(name, str) or not _MODULE.fullmatch(name):
                raise UserError(f"trust must name modules such as my_lab or my_lab.losses, got {name!r}")
        return cls(names)

    @classmethod
    def of_environment(cls) -> Trust:
        """Return the trust in the modules that the environment variable ``TOPK_TRUST`` lists, separated by commas.

        The variable is for programs that load our networks and do not know our options, such as MLflow.
        """
        return cls.of(filter(None, os.environ.get(_VARIABLE, "").split(",")))

    @classmethod
    def of_study(cls, study: Study) -> Trust:
        """Return the trust in the code that a study's definition names: the user's code, or ours."""
        return cls(exactly=frozenset(name for arm in study.arms for name in references(arm)))

    def with_own_modules(self, arm: Arm) -> Trust:
        """Return this trust with the modules of an arm that are the user's own files.

        Such files are neither in the standard library nor in an installed package, see
        :func:`~topk_platform.user_code.files_of`. Nothing is imported to find them. Modules that do not exist are
        included as well, because importing them gives a better error than a refusal.
        """
        names = references(arm)
        modules = {name.partition(":")[0] for name in names}
        nowhere = (name for name in modules if not _is_somewhere(name.partition(".")[0]))
        return replace(self, modules=(*self.modules, *files_of(names), *nowhere))

    def check(self, file: object, names: Mapping[str, str]) -> None:
        """Raise ``UserError`` if a name is a reference that is not trusted; nothing is imported.

        Args:
            file: The file that contains the names, for the message.
            names: The names, by kind, such as ``"model"``.
        """
        for kind, name in names.items():
            if is_reference(name) and not self._holds(name):
                raise UserError(
                    f"{file}: its {kind} is {name!r}, which is no code of this package; nothing of it was run. If you "
                    "trust that module and the author of the file, name the module with --trust MODULE (Python: "
                    f"trust=('MODULE',); MLflow: {_VARIABLE}=MODULE)"
                )

    def check_arm(self, file: object, arm: Arm) -> None:
        """Raise ``UserError`` if the data, the network, the loss or the sampler of an arm is not trusted."""
        for kind, name in named_by(arm):
            self.check(file, {kind: name})

    def _holds(self, name: str) -> bool:
        module = name.partition(":")[0]
        return name in self.exactly | _SHIPPED or any(
            f"{module}.".startswith(f"{known}.") for known in self.modules
        )


def _is_somewhere(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # "", or the program itself
        return False
