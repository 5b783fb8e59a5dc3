"""The smooth top-K SVM as an autograd function with derivatives of every order and a rule for ``vmap``."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
