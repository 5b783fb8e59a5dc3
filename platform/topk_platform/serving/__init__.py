"""Export of a study's networks, and their use without its store; and a recorded trial trained anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topk_platform.references import first_use

if TYPE_CHECKING:
    from topk_platform.data.folders import not_read
    from topk_platform.serving.calibrating import calibrate_export
    from topk_platform.serving.classifier import Candidate, Classifier
    from topk_platform.serving.exporting import Exported, export_model
    from topk_platform.serving.loader import load_model
    from topk_platform.serving.network_inputs import listed

__all__ = [
    "Candidate",
    "Classifier",
    "Exported",
    "calibrate_export",
    "export_model",
    "listed",
    "load_model",
    "not_read",
]

# All of them import torch, which takes a second; the configuration of an export is read without it.
if not TYPE_CHECKING:  # otherwise a type checker would accept any name as one of this package
    __getattr__ = first_use(__name__)
