"""What a store holds of a study: the ledger, the files of each trial, and notes of its runs.

``ledger`` opens a study's folder; ``writer`` appends trials, and ``history`` reads those that count.
"""

__all__: list[str] = []
