"""Looks on while a round runs, and reads and judges everything when it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

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
            reader.committed(f"{application_id}-epochs"),
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
        self._open: Callable[[], Watch] = lambda: Watch(
            workload, site.kind, site.address, application_id, guarantee
        )
        self._found: list[Verdict] = []
        self.looks = 0
        """How often it could look."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> list[Verdict]:
        """Look no more, and return what was seen."""
        self._over.set()
        self._thread.join()
        return self._found

    def _run(self) -> None:
        while not self._over.is_set():
            self._look_while_it_lasts()

    def _look_while_it_lasts(self) -> None:
        try:
            watch = self._open()
        except Exception:  # no broker just now: the next one looks from the beginning
            self._over.wait(_LOOK_SECONDS)
            return
        self._found.append(watch.found)
        with closing(watch):
            try:
                while not self._over.wait(_LOOK_SECONDS):
                    watch.look()
                    self.looks += 1
            except Exception:  # the same
                self._over.wait(_LOOK_SECONDS)
