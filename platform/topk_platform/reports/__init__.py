"""How what a study says is shown: tables in several formats, plots, a page, and sentences.

The values are those of ``topk_platform.results``.
"""

from topk_platform.reports.tables.data import to_arrow, to_csv, to_files, to_parquet, to_seeds
from topk_platform.reports.tables.markdown import to_markdown
from topk_platform.reports.tables.terminal import to_rich

__all__ = ["to_arrow", "to_csv", "to_files", "to_markdown", "to_parquet", "to_rich", "to_seeds"]
