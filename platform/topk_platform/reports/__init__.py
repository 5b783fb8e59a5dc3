"""Ways to show results: tables in several formats, plots, a page, and sentences.

The values come from ``topk_platform.results``; ``catalogue`` lists the formats and the plots.
"""

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.reports.result_tables import to_markdown, to_rich
    from topk_platform.reports.table_data import to_arrow, to_csv, to_files, to_parquet, to_seeds

__all__ = ["to_arrow", "to_csv", "to_files", "to_markdown", "to_parquet", "to_rich", "to_seeds"]

# The command line reads the catalogue for its help texts, which must load neither pyarrow nor numpy.
if not TYPE_CHECKING:  # otherwise a type checker would accept any name
    __getattr__ = first_use(__name__)
