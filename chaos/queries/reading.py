"""Readers that ask all instances in every way, while they are killed."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from chaos.queries.asking import Reply
from chaos.queries.expected import Stores
from chaos.queries.judging import Judge
from chaos.queries.processes import Kept
from chaos.queries.program import (
    GROUP_COUNT,
    GROUPS,
    HISTORIES,
    SESSIONS,
    STORES,
    WINDOW_MS,
    WINDOWS,
)
from chaos.queries.worker import AskingWorker
from headrace.queries.tokens import Token

USER_COUNT = 40
_GONE = frozenset({410})
_LATE = frozenset({409})
_OLD_TOKENS = 8
_PAUSE_SECONDS = 0.02
_KEYS_PER_SNAPSHOT = 18
_HISTORIES_PER_SNAPSHOT = 6
_MOST_BACK_MS = 10_000


def user_name(number: int) -> str:
    """Return a user."""
    return f"u{number:02}"


def sums(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the rows of a list as keys and values."""
    return {row["key"]: row["value"] for row in rows}


class Reader(AskingWorker):
    """Asks round after round until it is stopped. Each answer is compared with the orders.

    Args:
        number: Decides what it asks.
        judge: Compares.
        instances: The instances to ask.
        over: Set when it should stop.
        on_error: Called with an error that nobody expects.
    """

    def __init__(
        self,
        number: int,
        judge: Judge,
        instances: Sequence[Kept],
        over: threading.Event,
        on_error: Callable[[BaseException], None],
    ) -> None:
        super().__init__(f"reader-{number}", judge, instances, over, on_error)
        self._old: deque[Token] = deque(maxlen=_OLD_TOKENS)

    def step(self) -> None:
        token = self._read_newest()
        if token is None:
            self._over.wait(_PAUSE_SECONDS)
            return
        self._read_pinned(token)
        self._read_at_least(token)
        self._read_one_instance()
        self._read_pages()
        if self._old:
            self._read_pinned(self._chance.choice(self._old))
        self._old.append(token)

    def _stores(self, reply: Reply) -> Stores | None:
        return self._judge.stores_at(reply.token, reply.position)

    def _read_newest(self) -> Token | None:
        """Read several stores at once: one token, all totals those of the orders (Q1, Q2)."""
        asked_at = time.monotonic()
        reads = [{"read": "entries", "store": store} for store in STORES]
        instance = self._any().name
        reply = self._asker.ask(instance, "query", body={"reads": reads})
        if reply is None:
            return None
        self._judge.note_unpinned(instance, asked_at, reply.token)
        self._compare_all("merged", reply, dict(zip(STORES, reply.json["data"], strict=True)))
        return reply.token

    def _compare_all(self, kind: str, reply: Reply, rows: dict[str, list[dict[str, Any]]]) -> None:
        stores = self._stores(reply)
        if stores is None:
            return
        for store, found in rows.items():
            self._judge.compare(store, reply.token, sums(found), stores.sums[store])
            if len(found) != len(stores.sums[store]):
                self._judge.report("Q2", f"{store} has a key twice at {reply.token}")
        self._judge.note_answer(kind, reply.token)

    def _read_pinned(self, token: Token) -> None:
        """Read keys and a whole store at one snapshot, on several instances (Q1, Q3)."""
        params = {"snapshot": str(token)}
        for _ in range(_KEYS_PER_SNAPSHOT):
            self._read_key("pinned", self._any(), params)
        for _ in range(_HISTORIES_PER_SNAPSHOT):
            self._read_history(token)
        store = self._chance.choice(STORES)
        for instance in self._chance.sample(self._awake(), 2):
            path = f"stores/{store}/entries"
            reply = self._asker.ask(instance.name, path, params, allowed=_GONE)
            if reply is not None:
                self._is_at(token, reply)
                self._judge.note_body(store, reply.token, reply.body)
                self._compare_all("pinned", reply, {store: reply.json["data"]})

    def _read_history(self, token: Token) -> None:
        """Read the windows, the sessions or a version of a user at a snapshot (Q1, Q3)."""
        store = self._chance.choice(HISTORIES)
        user = user_name(self._chance.randrange(USER_COUNT + 1))
        params = {"snapshot": str(token)}
        if store in (WINDOWS, SESSIONS):
            params["limit"] = "1000"
            path = f"stores/{store}/{'windows' if store == WINDOWS else 'sessions'}/{user}"
        else:
            # Rounded, so that several readers ask for the same. Of late versions compaction may
            # remove all but the latest, and all prices are older than orders.
            back_ms = self._chance.randrange(_MOST_BACK_MS) // WINDOW_MS * WINDOW_MS
            params["as_of"] = str(self._judge.time_at(token, back_ms))
            path = f"stores/{store}/versions/{user}"
        reply = self._asker.ask(self._any().name, path, params, allowed=_GONE)
        if reply is None or self._stores(reply) is None:
            return
        self._is_at(token, reply)
        as_of = int(params.get("as_of", 0))
        expected = self._judge.expected_history(store, user, reply.token, as_of)
        if store in (WINDOWS, SESSIONS):
            found: Any = [(row["start"], row["end"], row["value"]) for row in reply.json["data"]]
        else:
            rows = reply.json["data"] if reply.status == 200 else []
            found = (rows[0]["value"], rows[0]["valid_from"]) if rows else None
        what = f"{path} {as_of}"
        self._judge.compare(what, reply.token, found, expected)
        self._judge.note_body(what, reply.token, reply.body)
        self._judge.note_answer("pinned", reply.token)
        self._judge.note_answer(store, reply.token)

    def _is_at(self, token: Token, reply: Reply) -> None:
        if reply.token != token:
            self._judge.report("Q3", f"an answer pinned to {token} is of {reply.token}")

    def _key(self) -> tuple[str, str]:
        store = self._chance.choice(STORES)
        if store == GROUPS:
            return store, f"g{self._chance.randrange(GROUP_COUNT)}"
        return store, user_name(self._chance.randrange(USER_COUNT + 1))

    def _read_key(
        self, kind: str, instance: Kept, params: dict[str, str] | None = None
    ) -> tuple[str, Token] | None:
        """Read a key; return it with the snapshot."""
        store, key = self._key()
        refusals = _GONE if kind == "pinned" else _LATE if kind == "min" else frozenset[int]()
        path = f"stores/{store}/keys/{key}"
        reply = self._asker.ask(instance.name, path, params, allowed=refusals)
        stores = None if reply is None else self._stores(reply)
        if reply is None or stores is None:
            return None
        if params and kind == "pinned" and str(reply.token) != params["snapshot"]:
            self._judge.report("Q3", f"an answer pinned to {params} is of {reply.token}")
        found = reply.json if reply.status == 200 else None
        self._judge.compare(f"{store} {key}", reply.token, found, stores.sums[store].get(key))
        self._judge.note_answer(kind, reply.token)
        return f"{store}/{key}", reply.token

    def _read_at_least(self, token: Token) -> None:
        """Read a key at a snapshot or a later one (Q4)."""
        params = {"min_snapshot": str(token), "wait_ms": "2000"}
        found = self._read_key("min", self._any(), params)
        if found is not None and not found[1].is_at_least(token):
            self._judge.report("Q4", f"a read with the minimum {token} answered {found[1]}")

    def _read_one_instance(self) -> None:
        """Read keys of one instance without a bound: it never goes back (Q4)."""
        instance = self._any()
        for _ in range(2):
            life, asked_at = instance.lives, time.monotonic()
            found = self._read_key("unpinned", instance)
            if found is not None and instance.lives == life:
                self._judge.note_forward(f"{self.name} {instance.name}", life, *found)
                self._judge.note_unpinned(instance.name, asked_at, found[1])

    def _read_pages(self) -> None:
        """Read a store page by page, each from another instance: all of one snapshot (Q2)."""
        params = {"limit": str(self._chance.randint(5, 15))}
        store = self._chance.choice(STORES)
        rows: list[dict[str, Any]] = []
        first: Reply | None = None
        while True:
            path = f"stores/{store}/entries"
            reply = self._asker.ask(self._any().name, path, params, allowed=_GONE)
            if reply is None:
                return
            first = first or reply
            self._is_at(first.token, reply)
            rows += reply.json["data"]
            if reply.json["next"] is None:
                break
            params = {**params, "cursor": reply.json["next"]}
        self._compare_all("paged", first, {store: rows})
