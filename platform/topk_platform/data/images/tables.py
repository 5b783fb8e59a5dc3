"""Text files with a line for each image."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from topk_platform.errors import MissingDataError, UserError, reason

__all__ = ["rows_of_table"]


def rows_of_table(file: Path, argument: str) -> list[list[str]]:
    """Return the cells of a text file's lines; commas, semicolons, tabs or bars separate them.

    Args:
        file: The file, in UTF-8 with or without a byte-order mark.
        argument: The name of the argument that names the file, for errors.

    Raises:
        MissingDataError: if there is no such file.
        UserError: if it is in another encoding or no table.
    """
    if not file.is_file():
        raise MissingDataError(f"{argument}: there is no {file}")
    try:
        text = file.read_text("utf-8-sig")
        ways = [
            list(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=each))) for each in ",;\t|"
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{argument}: {file} cannot be read: {reason(error)}; save it as CSV in UTF-8"
        ) from error
    # The separator of a table gives all its lines equally many cells, and more than one.
    return max(
        ways,
        key=lambda rows: (len(set(map(len, rows))) == 1 < len((rows or [[]])[0]), len((rows or [[]])[0])),
    )
