"""Replaces functions of `time` in one module.

A patch of ``module.time.sleep`` changes `time` itself, and so every thread of the process: a thread
that another test left behind would call the replacement.
"""

from __future__ import annotations

import time
from typing import Any

import pytest


class _ModuleTime:
    """`time` with some of its functions replaced."""

    def __init__(self, **replaced: Any) -> None:
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def patch_time(monkeypatch: pytest.MonkeyPatch, module: str, **replaced: Any) -> None:
    """Replace functions of `time` for one module, until the test ends."""
    monkeypatch.setattr(f"{module}.time", _ModuleTime(**replaced))
