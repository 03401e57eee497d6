"""Checks an application while a round runs, and all its topics and stores after the round."""

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
    dropped: dict[str, int] | None = None,
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
            dropped,
        )
        topics = [*workload.topics, *workload.outputs, *changelogs.values()]
        for source in reader.open_ends(topics):
            found.add("torn", f"{source} ends in a transaction that nobody has ended")
    return found


class Watcher:
    """A reader in the background, from the start of a round to its end.

    Args:
        workload: The workload that runs.
        site: Where its topics are.
        application_id: Names its groups.
        guarantee: Its guarantee.
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
        """How many checks succeeded."""
        self.error: Exception | None = None
        """Why the last check failed."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> Verdict:
        """Stop checking, and return the findings."""
        self._over.set()
        self._thread.join()
        return self._watch.found

    def _run(self) -> None:
        with closing(self._watch):
            while not self._over.wait(_LOOK_SECONDS):
                try:
                    self._watch.look()
                except Exception as error:  # no broker answers now: the watcher keeps its findings
                    self.error = error
                    with suppress(Exception):  # nor may that end it
                        self._watch.close()
                else:
                    self.looks += 1
