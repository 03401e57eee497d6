"""Feeds a workload while faults happen, each record once and in order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

from chaos.contract import Offsets, Sent, Workload
from chaos.sites import Site
from headrace.brokers.log import RawRecord
from headrace.records import headers_of

_PAUSE_SECONDS = 0.05


class Feeder:
    """Writes the records of a workload, a few at a time, until it is stopped.

    Args:
        workload: The workload to feed.
        site: Where to.
        group: The application, whose progress acts wait for.
        seed: Decides the records, and how many come at once.
        rate: How many come in a second, about.
    """

    def __init__(self, workload: Workload, site: Site, group: str, seed: int, rate: float) -> None:
        self.sent = 0
        """How many records of the workload were written."""
        self.injected = 0
        """How many records of faults were written beside them."""
        self._workload = workload
        self._site = site
        self._group = group
        self._seed = seed
        self._most = max(2, int(2 * rate * _PAUSE_SECONDS))
        self._chance = Random(seed)  # repeatable
        self._gate = threading.Lock()
        self._over = threading.Event()
        self.error: BaseException | None = None
        """Why it stopped by itself."""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Write nothing more."""
        self._over.set()
        self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing inside the block: while a broker is down, the outcome would be unknown."""
        with self._gate:
            yield

    def inject(self, records: Iterable[Sent]) -> None:
        """Write records of a fault between those of the workload."""
        written = [*map(raw_record, records)]
        with self._gate:
            self._site.log.append(written)
        self.injected += len(written)

    def has_read_all(self) -> bool:
        """Return whether the application has committed everything that is there now."""
        return is_read(self._site.committed(self._group), self._site.ends(self._workload.topics))

    def _run(self) -> None:
        try:
            while not self._over.wait(_PAUSE_SECONDS):
                with self._gate:
                    self._send(self._chance.randint(1, self._most))
        except BaseException as error:  # whatever it is, the round must say so
            self.error = error

    def _send(self, count: int) -> None:
        act = self._workload.act
        if act:
            count = min(count, act - self.sent % act)
            if self.sent and self.sent % act == 0 and not self.has_read_all():
                return
        records = self._workload.records(self._seed, self.sent, count)
        self._site.log.append([*map(raw_record, records)])
        self.sent += count


def raw_record(sent: Sent) -> RawRecord:
    """Return a record as a log takes it."""
    topic, partition, key, value, timestamp, headers = sent
    return (topic, partition, timestamp, key, value, headers_of(headers))


def is_read(committed: Offsets, ends: Offsets) -> bool:
    """Return whether a group has committed everything before some ends."""
    return all(committed.get(name, 0) >= end for name, end in ends.items() if end)
