"""Findings by name, for commands that read them in place of a store."""

from __future__ import annotations

from pathlib import Path

from topk_platform.cli.consoles import say
from topk_platform.cli.studies import findings_files, known_studies
from topk_platform.errors import UserError
from topk_platform.records.ledger import Ledger
from topk_platform.records.storage.store import Store
from topk_platform.results.findings import Findings

__all__ = ["requested_findings"]


def requested_findings(name: str, store: str, *, shipped: bool = True, **given: object) -> Findings | None:
    """Return the findings that a name means; None if it means a study whose results are in a store.

    A name means findings if it is a file of findings, or if only the findings of this study are shipped. For a study
    with a definition, the store counts; if it holds nothing of the study and findings are shipped, a line says so.

    Args:
        name: The name, or the file.
        store: The store.
        shipped: Whether shipped findings may take the place of results in the store.
        **given: The options that choose among results in a store; unset if they are None, False or empty.

    Raises:
        UserError: if the file is not one of findings, or if such an option is given with findings.
    """
    files = findings_files()
    options = [f"--{option}" for option, value in given.items() if value]
    if name.endswith(".gz") or (name in files and name not in known_studies()):
        options += ["--store"] if store != "runs" else []
        if options:
            raise UserError(
                f"{' and '.join(options)} need results in a store, and {name!r} has findings alone"
            )
        return Findings.read(Path(name) if name.endswith(".gz") else files[name])
    if options or not shipped or name not in files:
        return None
    if Ledger.open(Store.open(store), name).exists:
        return None
    say(
        f"topk: store {store!r} holds nothing of study {name}; shown are the findings of it that are shipped",
        err=True,
    )
    return Findings.read(files[name])
