"""Global stores as tasks see them: to be read."""

from __future__ import annotations

from typing import Any

from headrace.errors import StateStoreError

_WRITES = frozenset({"put", "put_if_absent", "put_all", "delete", "remove", "write"})


class ReadOnlyStore:
    """A store that refuses to be written: only its own processor maintains a global store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            msg = (
                f"Global store {self._store.name!r} can only be read here. "
                "Write to its topic; its own processor maintains it."
            )
            raise StateStoreError(msg, is_of_record=True)
        return getattr(self._store, name)
