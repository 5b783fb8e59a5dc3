"""Export of a study's networks, and their use without its store and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.serving.classifier import Candidate, Classifier
    from topk_platform.serving.exporting import Exported, export_model
    from topk_platform.serving.loader import load_model

__all__ = ["Candidate", "Classifier", "Exported", "export_model", "load_model"]

# Classifiers import torch, which the export of a network does not need.
if not TYPE_CHECKING:  # otherwise a type checker would accept any name as one of this package
    __getattr__ = first_use(__name__)
