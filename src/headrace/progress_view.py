"""The progress of a running application: a live view on a terminal, log lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import TypeAlias

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

_REFRESHES_PER_SECOND = 4
_SUMMARY_INTERVAL = timedelta(seconds=10)
_START_SECONDS = 2.0
"""The longest pause between two lines while the application starts."""
_RESULTS = 12
_FAILURES = 5
_NAME_WIDTH = 28
_BETWEEN_COLUMNS = 2
_COLOURS = {"RUNNING": "green", "ERROR": "red", "NOT_RUNNING": "dim", "PENDING_ERROR": "red"}


@dataclass(frozen=True)
class TopicProgress:
    """The progress of the application in one input topic."""

    topic: str
    records: int
    """Records read since the application started."""
    records_per_second: float
    lag: int
    """Offsets not yet read."""


@dataclass(frozen=True)
class ChangedResult:
    """An entry of a result that changed: a record of an output topic, or an entry of a store."""

    result: str
    """The name of the topic or store."""
    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class RunSnapshot:
    """A running application at one moment; unknown values are None."""

    application_id: str
    state: str
    """Kafka's name of it: RUNNING."""
    batch: int | None = None
    """The number of the last batch, as in Spark's log."""
    batch_seconds: float | None = None
    """How long the last batch took."""
    topics: tuple[TopicProgress, ...] = ()
    written_per_second: float = 0.0
    """Records written to output topics."""
    dropped: int = 0
    """Records left out: late, without a key, not decodable, refused by the broker."""
    dead_letters: int = 0
    results: tuple[ChangedResult, ...] = ()
    """The last changes, result by result, newest first."""
    failures: tuple[str, ...] = ()
    """The first failure that a handler skipped, for each step and reason."""
    is_starting: bool = False
    message: str = ""
    """The current step, while there is nothing else to show."""

    @property
    def read_per_second(self) -> float:
        """Records read from all topics."""
        return sum(topic.records_per_second for topic in self.topics)

    @property
    def lag(self) -> int:
        """Offsets not yet read in all topics."""
        return sum(topic.lag for topic in self.topics)


TakeSnapshot: TypeAlias = Callable[[], RunSnapshot]


class LiveView:
    """Draws snapshots on a terminal, 4 times a second, for the time of a ``with`` block.

    Another thread calls ``snapshot``, which must be quick.
    """

    def __init__(self, snapshot: TakeSnapshot, console: Console) -> None:
        self._snapshot = snapshot
        self._console = console
        self._live = Live(
            console=console,
            get_renderable=self.renderable,
            refresh_per_second=_REFRESHES_PER_SECOND,
            transient=False,
        )

    def __enter__(self) -> LiveView:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def renderable(self) -> RenderableType:
        snapshot = self._snapshot()
        parts: list[RenderableType] = [_headline(snapshot)]
        if snapshot.message:
            parts.append(Text(snapshot.message, style="dim"))
        if snapshot.topics:
            parts += [Text(), _topics(snapshot)]
        if snapshot.failures:
            parts.append(Text())
            parts += [Text(text, style="yellow") for text in snapshot.failures[-_FAILURES:]]
        if snapshot.results:
            parts += [Text(), _results(snapshot, self._console.width)]
        return Group(*parts)


class SummaryLines:
    """Writes a line about a running application every ``seconds``, and one at the end."""

    def __init__(
        self,
        snapshot: TakeSnapshot,
        write: Callable[[str], None],
        seconds: float = _SUMMARY_INTERVAL.total_seconds(),
    ) -> None:
        self._snapshot = snapshot
        self._write = write
        self._seconds = seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write_lines, name="summary", daemon=True)

    def __enter__(self) -> SummaryLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._write(summary_line(self._snapshot()))

    def _write_lines(self) -> None:
        pause = min(_START_SECONDS, self._seconds)
        while not self._stopped.wait(pause):
            snapshot = self._snapshot()
            self._write(summary_line(snapshot))
            pause = min(_START_SECONDS, self._seconds) if snapshot.is_starting else self._seconds


@contextmanager
def show_progress(
    snapshot: TakeSnapshot,
    write: Callable[[str], None],
    terminal: Console | None,
    *,
    every: timedelta = _SUMMARY_INTERVAL,
) -> Iterator[None]:
    """Show an application while the block runs: live on a terminal, as lines without one.

    Another thread calls ``snapshot``, which must be quick. If ``every`` is 0 or less, there are no
    lines.
    """
    view: AbstractContextManager[object]
    if terminal is not None:
        view = LiveView(snapshot, terminal)
    elif every > timedelta():
        view = SummaryLines(snapshot, write, every.total_seconds())
    else:
        view = nullcontext()
    with view:
        yield


def summary_line(snapshot: RunSnapshot) -> str:
    """Return a snapshot in one line, for a log."""
    if snapshot.message and not snapshot.topics:
        return f"{snapshot.state.lower()}  {snapshot.message}"
    batch = "-" if snapshot.batch is None else snapshot.batch
    seconds = snapshot.batch_seconds
    took = "" if seconds is None else f" took {seconds * 1000:.0f} ms"
    parts = [
        f"{snapshot.state.lower()} batch {batch}{took}",
        f"in {_short(snapshot.read_per_second)}/s",
        f"out {_short(snapshot.written_per_second)}/s",
        f"lag {snapshot.lag}",
        f"dropped {snapshot.dropped}",
        f"dlq {snapshot.dead_letters}",
    ]
    return "  ".join(parts)


def _headline(snapshot: RunSnapshot) -> Text:
    line = Text(snapshot.application_id, style="bold")
    line.append(f"  {snapshot.state}", style=_COLOURS.get(snapshot.state, "yellow"))
    if snapshot.batch is not None:
        line.append(f"  batch {snapshot.batch}", style="none")
    if snapshot.batch_seconds is not None:
        line.append(f" in {snapshot.batch_seconds * 1000:.0f} ms", style="none")
    line.append(f"  out {_short(snapshot.written_per_second)}/s", style="none")
    # The number shows it too: colour is never alone.
    line.append(f"  dropped {snapshot.dropped}", style="yellow" if snapshot.dropped else "none")
    line.append(
        f"  dead letters {snapshot.dead_letters}", style="red" if snapshot.dead_letters else "none"
    )
    return line


def _topics(snapshot: RunSnapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("topic")
    for name in ("records", "records/s", "lag"):
        table.add_column(name, justify="right")
    for topic in snapshot.topics:
        rate = _short(topic.records_per_second)
        table.add_row(topic.topic, f"{topic.records:,}", rate, f"{topic.lag:,}")
    return table


def _results(snapshot: RunSnapshot, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    results = snapshot.results[:_RESULTS]
    left = width
    for name, texts in (
        ("result", [changed.result for changed in results]),
        ("key", [changed.key for changed in results]),
    ):
        longest = max(map(cell_len, [name, *texts]))
        wide = min(longest, _NAME_WIDTH, width // 3)
        left -= wide + _BETWEEN_COLUMNS
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=wide)
    # A table that is too wide would be cut by the terminal, without a sign of it.
    table.add_column("value", no_wrap=True, overflow="ellipsis", max_width=max(1, left))
    for changed in results:
        table.add_row(Text(changed.result), Text(changed.key), Text(changed.value))
    return table


def _short(number: float) -> str:
    """Return a short form of a number: 24.1k."""
    for unit in ("", "k", "M", "G"):
        if abs(number) < 1000 or unit == "G":
            return f"{number:.0f}" if not unit else f"{number:.1f}{unit}"
        number /= 1000
    raise AssertionError(number)
