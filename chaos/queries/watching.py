"""Watchers: what they hear, added to what they read, is the store at every snapshot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing

import httpx

from chaos.queries.judging import Judge
from chaos.queries.processes import Kept
from chaos.queries.reading import sums
from chaos.queries.worker import AskingWorker
from headrace.queries.client import QueryClient, StoreChange, StoreReset
from headrace.queries.problems import QueryProblemError
from headrace.queries.tokens import Token

_PAUSE_SECONDS = 0.1


class Watcher(AskingWorker):
    """Watches a store, cuts the stream now and then, and resumes on another instance (Q7, Q8).

    Args:
        store: The store.
        judge: Compares.
        instances: The instances to ask.
        over: Set when it should stop.
        on_error: Called with an error that nobody expects.
    """

    def __init__(
        self,
        store: str,
        judge: Judge,
        instances: Sequence[Kept],
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__(f"watcher-{store}", judge, instances, over, on_error)
        self._store = store
        self._http = httpx.Client(trust_env=False)
        self._sums: dict[str, int] = {}
        self._last: tuple[Token, str] | None = None
        self._since: str | None = None

    def step(self) -> None:
        self._since = self._read() if self._since is None else self._watch(self._since)

    def close(self) -> None:
        super().close()
        self._http.close()

    def _read(self, at: Token | None = None) -> str:
        """Read the whole store; return where to watch on."""
        while not self._over.is_set():
            params = {"limit": "1000"} | ({} if at is None else {"snapshot": str(at)})
            instance = self._any().name
            path = f"stores/{self._store}/entries"
            reply = self._asker.ask(instance, path, params, allowed=frozenset({410}))
            if reply is not None:
                self._sums = sums(reply.json["data"])
                self._last = reply.token, ""
                return str(reply.token)
            at = None  # it may be gone
            self._over.wait(_PAUSE_SECONDS)
        return ""

    def _watch(self, since: str) -> str:
        """Watch until the stream is cut; return where to resume."""
        names = [each.name for each in self._instances]
        self._chance.shuffle(names)
        until = self._chance.randint(1, 120)
        client = QueryClient(names, timeout="5s", http=self._http)
        events = client.watch(self._store, since=since)
        with closing(events):  # type: ignore[type-var]  # it is a generator
            try:
                for count, event in enumerate(events):
                    if isinstance(event, StoreReset):
                        self._judge.counts["reset"] += 1
                        return self._read(event.snapshot)
                    self._take(event)
                    since = event.event_id
                    if count >= until or self._over.is_set():
                        break
            except QueryProblemError as problem:
                if problem.code.status not in (503, 410):
                    self._judge.report("Q6", f"a watch was refused: {problem}")
                self._over.wait(_PAUSE_SECONDS)
        self._judge.counts["cut"] += 1
        return since

    def _take(self, change: StoreChange) -> None:
        token, key = change.snapshot, change.key
        assert self._last is not None, "read"
        last, last_key = self._last
        if token != last:
            if last_key:
                self._compare(last)
            if not token.is_at_least(last):
                self._judge.report("Q7", f"a watch went back from {last} to {token}")
        elif not last_key or key <= last_key:
            self._judge.report("Q7", f"a watch sent {key} after {last_key} of {token}")
        self._last = token, key
        if change.value is None:
            self._sums.pop(key, None)
        else:
            self._sums[key] = change.value

    def _compare(self, token: Token) -> None:
        """Compare the store as it was heard with the orders: all of a snapshot has come (Q8)."""
        position = self._judge.position_of(token)
        stores = None if position is None else self._judge.stores_at(token, position)
        if stores is not None:
            if self._sums != stores.sums[self._store]:
                self._judge.report("Q8", f"a watch of {self._store} heard another {token}")
            self._judge.note_answer("watched", token)
