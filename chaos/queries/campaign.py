"""Reads the stores of a running application in every way, while processes are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import httpx

from chaos.queries.expected import Orders, position_of
from chaos.queries.feeding import Feeder, Follower, OwnWriter, random_order
from chaos.queries.judging import Judge
from chaos.queries.kills import BROKER, STOPPED_LEADER, Kills
from chaos.queries.kills import KINDS as KILLS
from chaos.queries.prices import Prices, rate
from chaos.queries.processes import Site
from chaos.queries.program import (
    APPLICATION,
    HISTORIES,
    INPUTS,
    LATE,
    PARTITIONS,
    PRICES,
    STORES,
)
from chaos.queries.reading import USER_COUNT, Reader, user_name
from chaos.queries.watching import Watcher
from headrace.brokers import open_log
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.config import StreamsConfig
from headrace.queries.coordination.local_routes import STATUS_PATH
from headrace.testing.kafka.starting import free_ports
from headrace.topology.naming import changelog_topic
from tests.kafka_broker import RunningBroker

INSTANCES = 3
_READERS = 3
_PAUSE_SECONDS = 0.05
_READY_SECONDS = 180.0
_END_SECONDS = 10.0
_REQUEST_TIMEOUT = "120s"
"""How long a write may take while a broker is away."""
_FIRST_PRICES = 2_000
"""The embedded log compacts changelogs that have so many records."""
_ANSWERS_PER_SNAPSHOT = 200
KINDS = (
    *("merged", "paged", "min", "unpinned", "watched", "cut", *HISTORIES),
    *("own write", "own write with client"),
)
"""The kinds of answers, besides the pinned ones, that each campaign must have."""
SNAPSHOTS = "snapshots"
"""Counts the snapshots that pinned answers were of."""


@dataclass(frozen=True)
class Plan:
    """The size and the place of a campaign."""

    answers: int
    """How many pinned answers it takes."""
    kills: int
    seed: int = 0
    brokers: Sequence[RunningBroker] = ()
    """The brokers of Kafka; none: the embedded log."""
    on_spark: bool = False
    guarantee: str = "exactly_once_v2"
    mistake: str | None = None
    """One of `chaos.queries.mistakes`; None: the instances are right."""
    own_writers: int = 32
    """How many threads write orders and read behind them."""
    recovery_seconds: float = 60.0
    """In which time all is ready again after a kill."""
    kinds: Sequence[str] = KILLS
    """The kinds of kills, in their order."""
    stop_seconds: float = 5.0
    """For how long a process stands still."""
    minutes: float = 60.0
    """In which time there are all answers."""

    @property
    def servers(self) -> str | None:
        """Kafka's addresses; None: the embedded log."""
        return ",".join(broker.address for broker in self.brokers) or None

    @property
    def possible_kinds(self) -> list[str]:
        """The kinds of kills that the brokers and the guarantee allow."""
        # A cluster of one broker is away as a whole while that starts again. Without transactions,
        # a leader that wakes late may leave an older value last in a changelog.
        impossible = [
            *([BROKER] if len(self.brokers) < 2 else []),
            *([STOPPED_LEADER] if self.guarantee == "at_least_once" else []),
        ]
        return [kind for kind in self.kinds if kind not in impossible]

    @property
    def own_writes(self) -> int:
        """Return how many orders must be seen by a reader who waits for an order of its own."""
        return max(1, self.answers // 10)

    @property
    def least_snapshots(self) -> int:
        """Return how many snapshots the answers must be of."""
        return max(10, self.answers // _ANSWERS_PER_SNAPSHOT)


@dataclass
class Outcome:
    """The result of a campaign."""

    problems: list[str]
    counts: dict[str, int]
    snapshots: int
    kills: dict[str, int]
    longest_gap: float
    slowest_recovery: float
    compacted: int = 0
    """How many records compaction has removed from the changelog of late versions."""
    seconds: float = 0.0
    tails: list[str] = field(default_factory=list)
    """The last output of each process, if there are problems."""


class Campaign:
    """One application with three instances, from its first order to its end.

    Args:
        plan: Its size and place.
        folder: Keeps everything.
        say: Prints a line.
    """

    def __init__(self, plan: Plan, folder: Path, say: Callable[[str], None] = print) -> None:
        self._plan, self._folder, self._say = plan, folder, say
        self._chance = Random(plan.seed)  # repeatable
        self._orders = Orders()
        self._users = [user_name(number) for number in range(USER_COUNT)]
        self._prices = Prices(self._users)
        self._judge = Judge(self._orders, self._prices)
        site = Site(folder, plan.servers, plan.on_spark, plan.guarantee)
        self._instances = [site.instance(port, plan.mistake) for port in free_ports(INSTANCES)]
        self._kills = Kills(
            site,
            self._instances,
            plan.brokers,
            self._judge,
            self._chance,
            self._await,
            plan.stop_seconds,
            plan.possible_kinds,
        )
        self._slowest = 0.0
        self._read = threading.Event()
        self._fed = threading.Event()
        self._over = threading.Event()
        self._until = time.monotonic() + plan.minutes * 60

    def run(self) -> Outcome:
        """Return the result. A campaign ends at the first problem."""
        began = time.monotonic()
        settings: dict[str, Any] = {
            "state_dir": self._folder / "state",
            "request_timeout": _REQUEST_TIMEOUT,
        }
        if self._plan.servers:
            settings["bootstrap_servers"] = self._plan.servers
        config = StreamsConfig(application_id=APPLICATION, **settings)
        (self._folder / "state").mkdir(exist_ok=True)
        with ExitStack() as ends:
            log, other = (ends.enter_context(closing(open_log(config))) for _ in range(2))
            self._write_first(log)
            ends.callback(self._kill_all)
            for process in self._kills.processes:
                process.start()
            threads = self._threads(log, other)
            ends.callback(self._end, threads)
            self._await_ready("start")
            for thread in threads:
                thread.start()
            self._read_and_kill()
            self._finish(threads)
            self._end(threads)
            self._stop()
            compacted = self._compacted(log)
        return self._outcome(time.monotonic() - began, compacted)

    def _write_first(self, log: TopicLog) -> None:
        """Write the rates of all users, and the first orders and prices behind them."""
        for topic in INPUTS:
            log.create_topic(topic, partitions=1 if topic == PRICES else PARTITIONS)
        log.append([rate(user, self._orders.clock) for user in self._users])
        self._orders.write(log, [random_order(self._chance) for _ in range(100)])
        self._prices.write(log, _FIRST_PRICES)

    def _kill_all(self) -> None:
        for process in self._kills.processes:
            process.kill()

    def _threads(self, log: Any, other: Any) -> list[threading.Thread]:
        judge, instances, over = self._judge, self._instances, self._read
        failed = self._failed
        return [
            Follower(other, judge, self._over, failed),
            Feeder(self._orders, self._prices, log, self._fed, failed),
            *(
                OwnWriter(
                    number,
                    self._orders,
                    log,
                    judge,
                    instances,
                    self._fed,
                    failed,
                    count=self._plan.own_writes,
                    seconds=self._plan.recovery_seconds + self._plan.stop_seconds,
                )
                for number in range(self._plan.own_writers)
            ),
            *(Watcher(store, judge, instances, over, failed) for store in STORES),
            *(Reader(number, judge, instances, over, failed) for number in range(_READERS)),
        ]

    def _failed(self, error: BaseException) -> None:
        name = threading.current_thread().name
        self._judge.report("check", f"{name} has failed: {error!r}")

    def _end(self, threads: list[threading.Thread]) -> None:
        for event in (self._read, self._fed, self._over):
            event.set()
        until = time.monotonic() + _END_SECONDS
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def _read_and_kill(self) -> None:
        """Kill one process after the other, at even distances, until there are enough answers."""
        plan = self._plan
        steps = [plan.answers * (number + 1) // (plan.kills + 1) for number in range(plan.kills)]
        for number, answers in enumerate(steps):
            self._await_answers(answers)
            if self._judge.problems:
                return
            kind = self._kills.kill(number)
            self._await_ready(kind)
            self._say(f"{number + 1} of {plan.kills} kills ({kind}): {self._line()}")
        self._await_answers(plan.answers)
        self._await_answers(plan.own_writes, "own write")
        self._await_answers(plan.least_snapshots, SNAPSHOTS)

    def _await_answers(self, count: int, kind: str = "pinned") -> None:
        last, moved = -1, time.monotonic()
        while (found := self._count(kind)) < count and not self._judge.problems:
            if found != last:
                last, moved = found, time.monotonic()
            if time.monotonic() - moved > self._plan.recovery_seconds:
                self._judge.report("Q12", f"no answer for {time.monotonic() - moved:.0f} s")
            if time.monotonic() > self._until:
                text = f"{found} of {count} answers ({kind}) in {self._plan.minutes:g} minutes"
                self._judge.report("check", text)
            self._check_lives()
            time.sleep(_PAUSE_SECONDS)

    def _count(self, kind: str) -> int:
        return len(self._judge.tokens) if kind == SNAPSHOTS else self._judge.counts[kind]

    def _check_lives(self) -> None:
        for process in self._kills.processes:
            if not process.is_up():
                self._judge.report("Q11", f"{process.name} has ended by itself")

    def _await_ready(self, kind: str) -> None:
        """Wait until all instances are ready, and the application has made a new snapshot (Q12)."""
        began = time.monotonic()
        before = self._judge.newest
        limit = _READY_SECONDS if kind == "start" else self._plan.recovery_seconds
        with httpx.Client(timeout=5.0, trust_env=False) as http:
            for each in self._instances:
                self._await(partial(_is_ready, http, each.name), each.name, seconds=limit)
        if kind != "start":
            self._await(lambda: self._judge.newest != before, "a new snapshot", seconds=limit)
            self._await_shown()
            self._slowest = max(self._slowest, time.monotonic() - began)

    def _await_shown(self) -> None:
        """Wait until each instance shows the newest snapshot with all its shards (Q10)."""
        newest = self._judge.newest
        number = -1 if newest is None else newest.snapshot
        with httpx.Client(timeout=5.0, trust_env=False) as http:
            for each in self._instances:
                what = f"{each.name} to show snapshot {number}"
                found = partial(_status, http, each.name)
                self._await(partial(_shows, http, each.name, number), what, found=found)

    def _await(
        self,
        is_so: Callable[[], bool],
        what: str,
        /,
        *,
        more: float = 0.0,
        seconds: float | None = None,
        found: Callable[[], object] = lambda: "something else",
    ) -> None:
        limit = more + (self._plan.recovery_seconds if seconds is None else seconds)
        give_up = time.monotonic() + limit
        while not is_so() and not self._judge.problems:
            if time.monotonic() > give_up:
                self._judge.report("Q12", f"waited {limit:.0f} s for {what}, found {found()}")
            time.sleep(_PAUSE_SECONDS)

    def _finish(self, threads: list[threading.Thread]) -> None:
        """Write nothing more, and wait until the application has reflected every order (Q11)."""
        self._read.set()
        for thread in threads:
            if isinstance(thread, Watcher | Reader):
                thread.join(_END_SECONDS)  # a watcher waits for the next change
        self._fed.set()
        self._await(self._has_all, "a snapshot with every order")
        self._await_shown()
        self._judge.check_enough(self._plan.least_snapshots, KINDS)

    def _has_all(self) -> bool:
        newest = self._judge.newest
        if newest is None or newest.position[PRICES] != [self._prices.count]:
            return False
        return tuple(position_of(newest.position)) == self._orders.ends

    def _stop(self) -> None:
        if self._judge.problems:
            return
        for process in self._kills.processes:
            code = process.stop()
            if code != 0:
                self._judge.report("Q11", f"{process.name} ended with {code}")

    def _line(self) -> str:
        return f"{self._judge.counts['pinned']:,} answers of {len(self._judge.tokens)} snapshots"

    def _compacted(self, log: TopicLog) -> int:
        name = TopicPartition(changelog_topic(APPLICATION, LATE), 0)
        if name.topic not in log.list_topics():
            return 0
        end = log.end_offsets([name])[name]
        return self._prices.count - sum(map(len, log.read(name, 0, end)))

    def _outcome(self, seconds: float, compacted: int) -> Outcome:
        judge = self._judge
        tails = [f"{each.name}: {each.last_output()}" for each in self._kills.processes]
        return Outcome(
            judge.problems,
            dict(sorted(judge.counts.items())),
            len(judge.tokens),
            self._kills.done,
            judge.longest_gap,
            self._slowest,
            compacted,
            seconds,
            tails if judge.problems else [],
        )


def _status(http: httpx.Client, name: str) -> dict[str, Any]:
    try:
        status: dict[str, Any] = http.get(f"http://{name}{STATUS_PATH}").json()
    except httpx.TransportError as error:
        return {"error": repr(error), "shards": {}}
    return status


def _shows(http: httpx.Client, name: str, number: int) -> bool:
    shards = _status(http, name)["shards"]
    return bool(shards) and all(shown >= number for shown in shards.values())


def _is_ready(http: httpx.Client, name: str) -> bool:
    try:
        return http.get(f"http://{name}/health/ready").status_code == 200
    except httpx.TransportError:
        return False
