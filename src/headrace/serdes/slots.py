"""The serde of a key or value at one step, if it is known before the settings are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from headrace.serdes.base import Serde

Part: TypeAlias = Literal["key", "value"]
Fill: TypeAlias = "Callable[[SerdeSlot], SerdeSlot]"
"""Returns a slot with the application's default in it, if it was empty."""


@dataclass(frozen=True)
class SerdeSlot:
    """A place for a serde: filled, or still to be filled by the application's default."""

    part: Part
    serde: Serde[Any] | None = None
    lost_by: str | None = field(default=None, compare=False)
    """The step that does not state the type; None if it is the one that needs the serde."""
    inner: SerdeSlot | None = None
    """The slot this one wraps: windowed keys are made of a key and its window."""
    wrap: Callable[[Serde[Any]], Serde[Any]] | None = None
    remedy: str | None = field(default=None, compare=False)
    """How to give the type, where that is not ``key=`` or ``value=`` at the step that lost it."""

    @property
    def need(self) -> Serde[Any]:
        """The serde; only asked for after `resolved` has filled the slot."""
        assert self.serde is not None, f"unresolved {self.part} slot"
        return self.serde

    def given(self, serde: Serde[Any] | None) -> SerdeSlot:
        """Return a slot with ``serde`` in it, or this one if there is none."""
        return self if serde is None else SerdeSlot(self.part, serde)

    def wrapped(self, wrap: Callable[[Serde[Any]], Serde[Any]]) -> SerdeSlot:
        """Return the slot of what ``wrap`` makes of this one's serde."""
        serde = None if self.serde is None else wrap(self.serde)
        return SerdeSlot(self.part, serde, self.lost_by, inner=self, wrap=wrap)

    @property
    def innermost(self) -> SerdeSlot:
        """The slot that the program fills: this one, or the one that it wraps."""
        return self if self.inner is None else self.inner.innermost

    def resolved(self, default: Serde[Any]) -> SerdeSlot:
        """Return the filled slot."""
        if self.serde is not None:
            return self
        if self.inner is not None and self.wrap is not None:
            inner = self.inner.resolved(default)
            return replace(self, serde=self.wrap(inner.need), inner=inner)
        return replace(self, serde=default)


def lost(part: Part, step: str, remedy: str | None = None) -> SerdeSlot:
    """Return the slot of a type that ``step`` does not state."""
    return SerdeSlot(part, lost_by=step, remedy=remedy)
