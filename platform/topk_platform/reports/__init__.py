"""Ways to show results: tables in several formats, plots, a page, and sentences.

The values come from ``topk_platform.results``; ``catalogue`` lists the formats and the plots.
"""
