"""The metadata of committed offsets: whether an application or a reset committed them."""

from __future__ import annotations

OWN_OFFSETS = "headrace"
"""Marks offsets of a running application. They show its progress; a start uses its checkpoint."""

RESET_OFFSETS = "headrace reset"
"""Begins the metadata of a reset's offsets, at which an application without a checkpoint starts. A
random word follows. A checkpoint records it, so one from before the reset is recognised."""
