"""Exporting a study's networks, and using them without its store and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.lazy import first_use

if TYPE_CHECKING:
    from topk_platform.serving.classifier import Candidate, Classifier
    from topk_platform.serving.exporting import Exported, export_model
    from topk_platform.serving.loading import load_model

__all__ = ["Candidate", "Classifier", "Exported", "export_model", "load_model"]

# Classifiers import torch, which exporting a network does without.
if not TYPE_CHECKING:  # a type checker would take any name for one of this package's
    __getattr__ = first_use(__name__)
