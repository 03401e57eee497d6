"""Readers of several instances that die, lag and return, checked against plain dictionaries.

A seed decides everything. Every answer is compared with the stores at the token that it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from random import Random
from typing import TypeAlias, cast
from unittest.mock import patch

from headrace.brokers.log import TopicPartition
from headrace.queries.coordination import coordinator as coordinator_module
from headrace.queries.coordination import watching
from headrace.queries.coordination.answers import Bound, Change, EventId, Heartbeat, Reset
from headrace.queries.coordination.coordinator import Coordinator
from headrace.queries.copy import views
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.reads import GetKey, Operation, Row, ScanKeys
from headrace.queries.tokens import Token
from headrace.serdes.partitioner import partition_for_key
from tests.unit.queries.fake_cluster import (
    OTHER_STORE,
    STORE,
    FakeApplication,
    FakeCluster,
    FakeInstance,
)
from tests.unit.queries.virtual_time import loop_time, run_virtually

STEPS = 25
REFUSALS = {
    ProblemCode.STORE_NOT_READY,
    ProblemCode.SNAPSHOT_GONE,
    ProblemCode.CURSOR_EXPIRED,
    ProblemCode.NOT_UP_TO_BOUND,
}


Floors: TypeAlias = dict[tuple[Coordinator, int], int]
"""The newest snapshot that readers of an instance have seen of each partition."""


class Model:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.application = FakeApplication(self.random.choice([1, 2, 3]))
        self.cluster = FakeCluster(self.application, "abc", standbys=self.random.choice([1, 2]))
        self.cluster.delay = lambda _member: self.random.choice([0.0, 0.001, 0.01, 0.3])
        self.answers = self.changes = self.resets = self.refused = 0
        self.floors: Floors = {}
        self.is_over = False

    async def run(self) -> None:
        """Run the application, the instances and the readers, and check the end."""
        self.cluster.apply_everywhere()
        readers = [self._read_often() for _ in range(2)]
        watchers = [self._watch_often(name) for name in (STORE, OTHER_STORE)]
        tasks = [asyncio.create_task(each) for each in (*readers, *watchers)]
        for _ in range(STEPS):
            self._disturb()
            await asyncio.sleep(self.random.choice([0.0, 0.02, 0.1, 0.4]))
            self._raise_failures(tasks)
        for instance in self.cluster.instances.values():
            instance.unready.clear()
            if not instance.is_alive:
                instance.restart()
        self.cluster.apply_everywhere()
        self.is_over = True
        await asyncio.sleep(30)
        self._raise_failures(tasks)
        assert all(task.done() for task in tasks), "a reader hangs"
        await self._check_end()

    def _raise_failures(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()

    async def _check_end(self) -> None:
        for instance in self.cluster.instances.values():
            page = await instance.coordinator.page(STORE, ScanKeys(), limit=1_000)
            assert page.token == self.application.token(), "the newest snapshot is not shown"
            self._check_rows(STORE, ScanKeys(), page.rows, page.token)

    def _disturb(self) -> None:
        """Commit a snapshot, or let something happen to an instance."""
        random = self.random
        instance = random.choice([*self.cluster.instances.values()])
        match random.choice(["commit"] * 3 + ["apply"] * 8 + ["gossip"] * 4 + ["break"]):
            case "commit":
                keys = [b"%02d" % number for number in range(12)]
                changes = {
                    store: {
                        key: random.choice([None, b"%d" % random.randrange(99)])
                        for key in random.sample(keys, random.randrange(6))
                    }
                    for store in (STORE, OTHER_STORE)
                }
                self.application.commit(changes, step=random.choice([1, 1, 1, 2]))
            case "apply" if instance.is_alive:
                self._apply(instance)
            case "gossip":
                self.cluster.gossip()
            case "break":
                self._break(instance)

    def _apply(self, instance: FakeInstance) -> None:
        random = self.random
        shards = instance.kept
        if random.random() < 0.2:
            shards = random.sample(shards, random.randrange(len(shards) + 1))
        numbers = [each for each in self.application.records if each > instance.head]
        if not numbers or random.random() < 0.1:
            # Those that were left behind join.
            instance.apply((numbers or [instance.head])[-1], shards, jumps=bool(numbers))
        else:
            for number in numbers[: random.choice([1, 99])]:
                instance.apply(number, shards)

    def _break(self, instance: FakeInstance) -> None:
        random = self.random
        if not instance.is_alive:
            instance.restart()
        elif instance.unready:
            instance.unready.clear()
        elif random.random() < 0.3:
            instance.unready.update(random.sample(instance.kept, 1))
        elif all(each.is_alive for each in self.cluster.instances.values()):
            instance.is_alive = False
        else:
            instance.restart()

    def _living(self) -> FakeInstance | None:
        living = [each for each in self.cluster.instances.values() if each.is_alive]
        return self.random.choice(living) if living else None

    async def _read_often(self) -> None:
        read = Token("", 0)
        while not self.is_over:
            await asyncio.sleep(self.random.choice([0.0, 0.05, 0.1]))
            instance = self._living()
            if instance is None:
                continue
            bound = self._bound(read)
            start, coordinator = loop_time(), instance.coordinator
            floors = dict(self.floors)
            try:
                kinds = [self._get, self._get, self._page, self._many, self._rows]
                token, partitions = await self.random.choice(kinds)(coordinator, bound)
            except QueryProblemError as problem:
                self._check_refusal(problem, loop_time() - start)
                continue
            self.answers += 1
            self._check_bound(bound, token)
            if bound.at is None:
                self._check_forward(coordinator, partitions, token, floors)
            read = token

    def _check_refusal(self, problem: QueryProblemError, seconds: float) -> None:
        self.refused += 1
        assert problem.code in REFUSALS, problem
        assert seconds < 5, "a refusal takes too long"

    def _bound(self, read: Token) -> Bound:
        random = self.random
        wait_ms = random.choice([0, 100, 1_000])
        match random.choice(["newest", "newest", "pinned", "minimum", "position"]):
            case "pinned" if read.history:
                return Bound(at=read)
            case "minimum" if read.history:
                return Bound(minimum=read, wait_ms=wait_ms)
            case "position":
                offset = random.randrange(self.application.newest)
                return Bound(position={TopicPartition("numbers", 0): offset}, wait_ms=wait_ms)
        return Bound()

    def _check_bound(self, bound: Bound, token: Token) -> None:
        if bound.at is not None:
            assert token == bound.at, "a pinned read has another token"
        if bound.minimum is not None:
            assert token.is_at_least(bound.minimum), "an answer is older than its minimum"
        for name, offset in (bound.position or {}).items():
            position = self.application.records[token.snapshot].position
            assert position[name.topic][name.partition] > offset, "a write is not reflected"

    def _check_forward(
        self, coordinator: Coordinator, partitions: Iterable[int], token: Token, floors: Floors
    ) -> None:
        """Check that an answer is not older than those that were there when the read began."""
        for partition in partitions:
            floor = floors.get((coordinator, partition), 0)
            assert token.snapshot >= floor, "an instance goes back in a shard"
            floor = self.floors.get((coordinator, partition), 0)
            self.floors[coordinator, partition] = max(token.snapshot, floor)

    async def _get(self, coordinator: Coordinator, bound: Bound) -> tuple[Token, Iterable[int]]:
        key = b"%02d" % self.random.randrange(14)
        fast = coordinator.newest_local(STORE, key) if bound == Bound() else None
        if fast is not None:
            value, _, shown = fast
            token = self.application.token(shown.record.snapshot)
            assert value == self.application.states[token.snapshot][STORE].get(key)
        else:
            answer = await coordinator.read_key(STORE, key, bound)
            token = answer.token
            self._check_rows(STORE, GetKey(key), answer.rows, token)
        return token, [partition_for_key(key, self.application.partitions)]

    async def _page(self, coordinator: Coordinator, bound: Bound) -> tuple[Token, Iterable[int]]:
        operation = self._scan()
        limit = self.random.choice([1, 3, 5, 100])
        page = await coordinator.page(STORE, operation, bound, limit)
        token, rows = page.token, [*page.rows]
        while page.next is not None:
            other = self._living()
            if other is not None:
                coordinator = other.coordinator
            page = await coordinator.page(STORE, None, limit=limit, cursor=page.next)
            assert page.token == token, "pages have two tokens"
            rows.extend(page.rows)
        self._check_rows(STORE, operation, rows, token)
        return token, ()

    async def _rows(self, coordinator: Coordinator, bound: Bound) -> tuple[Token, Iterable[int]]:
        operation = self._scan()
        token, _, rows = await coordinator.rows(STORE, operation, bound)
        self._check_rows(STORE, operation, [row async for row in rows], token)
        return token, range(self.application.partitions)

    async def _many(self, coordinator: Coordinator, bound: Bound) -> tuple[Token, Iterable[int]]:
        reads: list[tuple[str, Operation]] = [
            (STORE, self._scan()),
            (OTHER_STORE, ScanKeys()),
            (STORE, GetKey(b"%02d" % self.random.randrange(14))),
        ]
        answers = await coordinator.read_many(reads, bound)
        for (store, operation), rows in zip(reads, answers.rows, strict=True):
            self._check_rows(store, operation, rows, answers.token)
        return answers.token, range(self.application.partitions)

    def _scan(self) -> ScanKeys:
        random = self.random
        start, end = sorted(b"%02d" % random.randrange(14) for _ in range(2))
        return ScanKeys(
            start=random.choice([None, start]),
            end=random.choice([None, end]),
            prefix=random.choice([None, None, b"0"]),
            descending=random.random() < 0.3,
        )

    def _check_rows(
        self, store: str, operation: Operation, rows: Sequence[Row], token: Token
    ) -> None:
        state = self.application.states[token.snapshot][store]
        expected = []
        match operation:
            case GetKey(key):
                expected = [(key, state[key])] if key in state else []
            case ScanKeys(start, end, prefix, descending):
                expected = [
                    (key, state[key])
                    for key in sorted(state, reverse=descending)
                    if (start is None or key >= start)
                    and (end is None or key <= end)
                    and (prefix is None or key.startswith(prefix))
                ]
        found = [(row.key, row.value) for row in rows]
        assert found == expected, f"wrong rows at {token}: {found}, expected {expected}"

    async def _watch_often(self, store: str) -> None:
        """Follow a store through cuts, and compare its copy with the store at each snapshot."""
        follower = _Follower(self.application, store)
        while not (self.is_over and follower.is_at(self.application.newest)):
            instance = self._living()
            if instance is None:
                await asyncio.sleep(0.05)
                continue
            events = instance.coordinator.watch(store, since=follower.event_id)
            try:
                await self._follow(events, follower, instance)
            except QueryProblemError as problem:
                self._check_refusal(problem, 0)
            finally:
                await cast(AsyncGenerator[object, None], events).aclose()
        self.changes += follower.changes
        self.resets += follower.resets

    async def _follow(self, events: object, follower: _Follower, instance: FakeInstance) -> None:
        cut = self.random.choice([1, 2, 5, 30])
        async for event in cast(AsyncGenerator[Change | Reset | Heartbeat, None], events):
            follower.take(event)
            cut -= 1
            is_done = self.is_over and follower.is_at(self.application.newest)
            if cut == 0 or not instance.is_alive or is_done:
                return


class _Follower:
    """A copy of a store that the events of a watch keep up to date."""

    def __init__(self, application: FakeApplication, store: str) -> None:
        self.application = application
        self.store = store
        self.state: dict[bytes, bytes] = {}
        self.event_id: EventId | None = None
        self.changes = self.resets = 0

    def is_at(self, number: int) -> bool:
        """Return whether the copy has everything of a snapshot."""
        at = self.event_id
        return at is not None and at.partition is None and at.token.snapshot == number

    def take(self, event: Change | Reset | Heartbeat) -> None:
        """Take an event, and check the copy where a snapshot ends."""
        before, at = self.event_id, event.event_id
        match event:
            case Reset():
                self.resets += 1
                self.state = dict(self._store_at(at.token))
            case Heartbeat() if before is None:
                self.state = dict(self._store_at(at.token))
            case Heartbeat():
                if at.partition is None:
                    self._check(at.token)
            case Change(key=key, value=value):
                assert before is not None, "a watch begins with a heartbeat"
                self._check_order(before, at)
                self.changes += 1
                if value is None:
                    self.state.pop(key, None)
                else:
                    self.state[key] = value
        self.event_id = at

    def _check_order(self, before: EventId, at: EventId) -> None:
        if at.token == before.token:
            assert before.partition is not None, "a change of a snapshot that was complete"
            assert (before.position, before.partition) < (at.position, at.partition), "out of order"
        else:
            assert before.token.snapshot < at.token.snapshot, "a watch goes back"
            since = self.application.records[at.token.snapshot].since
            self._check(self.application.token(since))

    def _check(self, token: Token) -> None:
        assert self.state == self._store_at(token), f"the changes up to {token} do not add up"

    def _store_at(self, token: Token) -> dict[bytes, bytes]:
        return self.application.states[token.snapshot][self.store]


def run(seed: int) -> Model:
    """Run a seed, and return what happened.

    Few snapshots are kept and requests are small, so that little is needed to lose one.
    """

    async def main() -> Model:
        model = Model(seed)
        await model.run()
        return model

    with (
        patch.object(views, "KEPT_VIEWS", 4),
        patch.object(views, "KEPT_MS", 300),
        patch.object(watching, "CHUNK_CHANGES", 2),
        patch.object(coordinator_module, "CHUNK_ROWS", 3),
    ):
        return run_virtually(main())
