"""A copy of all stores in this process, for its own queries."""

from __future__ import annotations

import threading
import time

from headrace.config import StreamsConfig
from headrace.queries.catalog import Catalog
from headrace.queries.instance import Instance

_POLL_SECONDS = 0.1


class OwnCopy:
    """An instance without a name that keeps all shards.

    Raises:
        BrokerError: The log does not answer.
    """

    def __init__(self, catalog: Catalog, config: StreamsConfig) -> None:
        self.instance = Instance(catalog, config, name=None, restarts=True)
        """Has all shards."""
        self._is_closed = threading.Event()
        self._has_waited = False
        self.instance.start()

    def wait_once(self, seconds: float) -> None:
        """Wait until all shards are ready. After that time, or the first success, do not wait."""
        deadline = time.monotonic() + seconds
        while not (self._has_waited or self.instance.is_ready() or self._is_closed.is_set()):
            if time.monotonic() >= deadline:
                break
            self._is_closed.wait(_POLL_SECONDS)
        self._has_waited = True

    def close(self) -> None:
        """Close the instance."""
        self._is_closed.set()
        self.instance.close()
