"""Tensors that outlive the caller's mode."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def ordinary_tensors() -> AbstractContextManager[object]:
    """What is allocated inside may be written to later, whatever mode the caller is in; free where there is none."""
    return torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else nullcontext()
