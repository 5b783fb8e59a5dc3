"""Reading a regime's data; if a file is missing, the error names the folder of datasets."""

from __future__ import annotations

import os
from pathlib import Path

from topk_platform.data import Source, data_folder, load
from topk_platform.errors import MissingDataError, UserError
from topk_platform.specs import Regime

__all__ = ["load_regime"]


def load_regime(regime: Regime) -> Source:
    """Return a regime's dataset before its conditions, as :func:`~topk_platform.data.load`.

    Raises:
        MissingDataError: if a function of the user's looked for a file that is missing in the folder of datasets; the
            message names that folder and says how to choose another.
        UserError: as for :func:`~topk_platform.data.load`.
    """
    try:
        return load(regime)
    except MissingDataError:
        raise
    except UserError as error:
        if file := _missing(error.__cause__):
            raise MissingDataError(
                f"dataset {regime.dataset}: there is no {file} in the folder of datasets, {data_folder()}. "
                f"Put it there, or name the folder that holds {file} with --data DIR or TOPK_DATA"
            ) from error
        raise


def _missing(cause: BaseException | None) -> str:
    """Return the missing file's path within the folder of datasets; empty for any other cause."""
    if not isinstance(cause, FileNotFoundError) or not isinstance(cause.filename, str | os.PathLike):
        return ""
    file = Path(cause.filename)
    return str(file.relative_to(data_folder())) if file.is_relative_to(data_folder()) else ""
