"""Feed hostile records to the runtime in this process, and add up the outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from chaos.hostile.records import LARGEST_BYTES, TOPICS, hostile_record
from chaos.hostile.topology import hostile_topology
from headrace import StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.brokers.log import RawRecord, TopicLog
from headrace.processors.handlers import (
    ErrorHandlerContext,
    ExceptionHandler,
    HandlerResponse,
    dead_letter,
)
from headrace.records import headers_of
from headrace.runtime.in_process import InProcessQuery
from headrace.runtime.run_files import BatchResult

PARTITIONS = 2
REFUSED = "refused"
"""The reason under which the tables show records that the broker refused."""
_DEAD_LETTER_REASONS = ("deserialization", "processing", "production", "serialization", REFUSED)
"""The reasons for which a handler is called."""
_ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings of topics that accept records of any time; Kafka refuses the future by default."""
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PIECE = 1_000
_QUARTERS = 4
_MAX_GROWTH, _MAX_GROWTH_MB = 1.2, 100
_PATIENCE = "60s"
_COORDINATES = tuple(f"__streams.errors.{name}" for name in ("topic", "partition", "offset"))


@dataclass(frozen=True)
class Sums:
    """The outcomes of the records of one input topic."""

    topic: str
    records: int
    out: int
    dropped: dict[str, int]
    """Records, by reason."""

    @property
    def is_right(self) -> bool:
        """Return whether each record is an output or a counted drop."""
        return self.records == self.out + sum(self.dropped.values())


@dataclass(frozen=True)
class Outcome:
    """The sums of one application."""

    name: str
    """The kind of its handlers."""
    sums: list[Sums]
    dead_letters: int
    """How many dead letters there are."""
    problems: list[str]


@dataclass(frozen=True)
class Result:
    """The end of a campaign."""

    outcomes: list[Outcome]
    megabytes: list[int]
    """The most memory that the process held in each quarter."""
    problems: list[str] = field(default_factory=list)


class OwnHandlers:
    """Handlers of a user, which count their calls and write dead letters of their own."""

    def __init__(self, topic: str) -> None:
        self.calls: Counter[str] = Counter()
        self._topic = topic

    def handler(self, kind: str) -> ExceptionHandler:
        """Return the handler of one kind."""

        def handle(
            context: ErrorHandlerContext, _record: object, error: Exception, /
        ) -> HandlerResponse:
            self.calls[kind] += 1
            return HandlerResponse.resume([dead_letter(self._topic, context, error)])

        return handle


class Application:
    """The program with one kind of handlers.

    Args:
        name: The kind, ``continue`` or ``own``.
        folder: Keeps its state.
        log_settings: Where the topics are, as settings.
    """

    def __init__(self, name: str, folder: Path, log_settings: dict[str, Any]) -> None:
        self.name = name
        self.dead_letter_topic = f"{name}-letters"
        self.own = OwnHandlers(self.dead_letter_topic) if name == "own" else None
        handlers: dict[str, Any] = {
            f"{kind}_exception_handler": self.own.handler(kind) if self.own else "continue"
            for kind in ("deserialization", "processing", "production")
        }
        config = StreamsConfig(
            application_id=f"hostile-{name}",
            state_dir=folder / name,
            statestore_cache_max_bytes=0,
            errors_dead_letter_queue_topic_name=self.dead_letter_topic,
            **log_settings,
            **handlers,
        )
        Path(config.state_dir).mkdir(parents=True)
        with closing(open_log(config)) as log:
            for topic in (*(f"{name}-{topic}" for topic in TOPICS), self.dead_letter_topic):
                log.create_topic(topic, partitions=PARTITIONS, settings=_ANY_TIME)
        self.query = InProcessQuery(hostile_topology(name), config, shuffle_partitions=2)

    def outcome(self, fed: dict[str, int]) -> Outcome:
        """Return the sums, from the counts of the runtime and from the topics themselves."""
        totals = self.query.run_files.read(BatchResult).totals
        dropped = {topic: Counter[str]() for topic in TOPICS}
        for nodes in totals.dropped.values():
            for node, reasons in nodes.items():
                dropped[node.rpartition("-")[2]].update(reasons)
        for topic in TOPICS:
            dropped[topic][REFUSED] += totals.refused.get(f"{self.name}-{topic}", 0)
        log = self.query.log
        sums = [
            Sums(
                topic,
                fed[topic],
                sum(1 for _ in records_in(log, f"{self.name}-{topic}")),
                {reason: number for reason, number in sorted(dropped[topic].items()) if number},
            )
            for topic in TOPICS
        ]
        dead_letters = Counter(
            coordinates(headers) for headers in records_in(log, self.dead_letter_topic)
        )
        calls = None if self.own is None else self.own.calls.total()
        problems = [f"{self.name}: {each}" for each in problems_of(sums, dead_letters, calls)]
        return Outcome(self.name, sums, dead_letters.total(), problems)


def problems_of(
    sums: list[Sums], dead_letters: Counter[tuple[bytes | None, ...]], calls: int | None
) -> Iterator[str]:
    """Yield what does not match.

    Args:
        sums: Of each topic.
        dead_letters: The coordinates that dead letters name.
        calls: How often handlers were called; None if they did not count.
    """
    for each in sums:
        if not each.is_right:
            total = each.out + sum(each.dropped.values())
            yield f"{each.topic} has {each.records} records, but {total} ends."
    reasons = sum((Counter(each.dropped) for each in sums), Counter[str]())
    failed = sum(reasons[reason] for reason in _DEAD_LETTER_REASONS)
    if dead_letters.total() != failed:
        yield f"{failed} records failed, but there are {dead_letters.total()} dead letters."
    nowhere = sum(number for origin, number in dead_letters.items() if origin[0] is None)
    if nowhere:
        yield f"{nowhere} dead letters name no record."
    doubled = [origin for origin, number in dead_letters.items() if number > 1 and origin[0]]
    if doubled:
        yield f"{len(doubled)} records have two dead letters, as {doubled[0]}."
    if calls is not None and calls != failed:
        yield f"{failed} records failed, but handlers were called {calls} times."


class Campaign:
    """Hostile records through the program with both kinds of handlers.

    Args:
        count: How many records there are, in all topics together.
        seed: Decides them.
        folder: Keeps everything.
        servers: Where Kafka is; None for the embedded log.
    """

    def __init__(self, count: int, seed: int, folder: Path, servers: str | None = None) -> None:
        self._each, self._seed = -(-count // len(TOPICS)), seed
        log_settings: dict[str, Any] = {"embedded_path": folder / "log.db"}
        if servers is not None:
            log_settings = {"bootstrap_servers": servers, "request_timeout": _PATIENCE}
        # The embedded log compresses nothing.
        codecs = ("none",) if servers is None else _CODECS
        self._logs = cycle(
            [
                open_log(StreamsConfig(**log_settings, producer={"compression.type": c}))
                for c in codecs
            ]
        )
        log = next(self._logs)
        settings = {"max.message.bytes": str(4 * LARGEST_BYTES), **_ANY_TIME}
        for topic in TOPICS:
            log.create_topic(topic, partitions=PARTITIONS, settings=settings)
        self._applications = [
            Application(name, folder, log_settings) for name in ("continue", "own")
        ]

    def run(self, report: Callable[[str], object]) -> Result:
        """Feed and process everything, in quarters; return the sums."""
        megabytes = []
        for quarter in range(_QUARTERS):
            _reset_peak()
            begin, end = (self._each * number // _QUARTERS for number in (quarter, quarter + 1))
            for start in range(begin, end, _PIECE // len(TOPICS)):
                self._feed(range(start, min(end, start + _PIECE // len(TOPICS))))
                for application in self._applications:
                    application.query.run()
            megabytes.append(_peak_megabytes())
            report(f"{end * len(TOPICS):,} records: at most {megabytes[-1]:,} MB")
        fed = dict.fromkeys(TOPICS, self._each)
        outcomes = [application.outcome(fed) for application in self._applications]
        problems = [problem for outcome in outcomes for problem in outcome.problems]
        _, second, *_, last = megabytes
        if last > second * _MAX_GROWTH and last > second + _MAX_GROWTH_MB:
            problems.append(f"Memory grew from {second} to {last} MB.")
        return Result(outcomes, megabytes, problems)

    def _feed(self, numbers: range) -> None:
        next(self._logs).append(
            [self._raw(topic, number) for topic in TOPICS for number in numbers]
        )

    def _raw(self, topic: str, number: int) -> RawRecord:
        key, value, timestamp, headers = hostile_record(topic, self._seed, number, self._each)
        return (topic, number % PARTITIONS, timestamp, key, value, headers_of(headers))


def records_in(log: TopicLog, topic: str) -> Iterator[Any]:
    """Yield the headers of all records of a topic."""
    names = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for name, end in log.end_offsets(names).items():
        for records in log.read(name, 0, end):
            for record in records:
                yield record.headers


def coordinates(headers: Any) -> tuple[bytes | None, ...]:
    """Return the topic, the partition and the offset that a dead letter names."""
    return tuple(headers.last(name) for name in _COORDINATES)


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_megabytes() -> int:
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) // 1000
