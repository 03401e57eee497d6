"""The metadata of committed offsets: whether an application or a reset committed them."""

from __future__ import annotations

OWN_OFFSETS = "headrace"
"""A running application: how far it has come. Its checkpoint knows better."""

RESET_OFFSETS = "headrace reset"
"""Begins the text of a reset: where an application without a checkpoint starts. Each reset has a
word of its own after it, so that a checkpoint knows whether it is younger."""
