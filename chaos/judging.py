"""Looks on while a round runs, and reads and judges everything when it is over."""

from __future__ import annotations

import threading
from contextlib import closing, suppress

from chaos.checks import Verdict, verdict
from chaos.contract import EXACTLY_ONCE, Stores, Workload
from chaos.reading import open_reader
from chaos.sites import Site
from chaos.watching import Watch

_LOOK_SECONDS = 0.5


def judge(
    workload: Workload,
    site: Site,
    application_id: str,
    guarantee: str = EXACTLY_ONCE,
    stores: Stores | None = None,
) -> Verdict:
    """Return what is wrong with what an application wrote and keeps, by what it promises."""
    changelogs = {store: f"{application_id}-{store}-changelog" for store in workload.stores}
    with closing(open_reader(site.kind, site.address)) as reader:
        logged = site.in_transactions(reader.read(changelogs.values(), {}))
        found = verdict(
            workload,
            reader.read(workload.topics, {}),
            site.in_transactions(reader.read(workload.outputs, {})),
            {store: logged.get(topic, {}) for store, topic in changelogs.items()},
            reader.committed(application_id),
            reader.committed(f"{application_id}-markers"),
            guarantee,
            stores,
        )
        topics = [*workload.topics, *workload.outputs, *changelogs.values()]
        for place in reader.open_ends(topics):
            found.add("torn", f"{place} ends in a transaction that nobody has ended")
    return found


class Watcher:
    """A reader in the background, from the start of a round to its end.

    Args:
        workload: What runs.
        site: Where its topics are.
        application_id: Names its groups.
        guarantee: What it promises.
    """

    def __init__(
        self,
        workload: Workload,
        site: Site,
        application_id: str,
        guarantee: str = EXACTLY_ONCE,
    ) -> None:
        self._watch = Watch(workload, site.kind, site.address, application_id, guarantee)
        self.looks = 0
        """How often it could look."""
        self.error: Exception | None = None
        """Why it could not, the last time."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> Verdict:
        """Look no more, and return what was seen."""
        self._over.set()
        self._thread.join()
        return self._watch.found

    def _run(self) -> None:
        with closing(self._watch):
            while not self._over.wait(_LOOK_SECONDS):
                try:
                    self._watch.look()
                except Exception as error:  # no broker just now: it remembers what it saw
                    self.error = error
                    with suppress(Exception):  # nor may that end it
                        self._watch.close()
                else:
                    self.looks += 1
