"""The thread that keeps the copy of an instance up to date."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.brokers.sessions import Broker
from headrace.config import StreamsConfig
from headrace.errors import BrokerError, StreamsError
from headrace.home import ApplicationHome
from headrace.queries.catalog import Catalog
from headrace.queries.copy.copy_progress import ApplierLimits
from headrace.queries.copy.database import Database
from headrace.queries.copy.layout import Shard
from headrace.queries.copy.reader import CopyReader
from headrace.queries.copy.views import KeptSnapshots
from headrace.queries.copy_facts import CopyFacts, facts_of
from headrace.queries.instance_files import InstanceFiles
from headrace.queries.transfer.fetching import ShardSource
from headrace.queries.transfer.imports import ShardImports
from headrace.runtime.internal_topics import changelog_settings
from headrace.runtime.snapshots import SnapshotRecord

_STEP_SECONDS = 0.05
"""How long a step waits for records."""
_PAUSE_SECONDS = 0.5
"""How long the applier waits after the broker did not answer."""
_RESTART_SECONDS = 1.0
_STALLED_SECONDS = 60.0
"""After this time without a step the applier counts as stopped; one question may take 30 s."""
_CLOSE_SECONDS = 30.0
_RETENTION = "delete.retention.ms"

_log = logging.getLogger("headrace")


class CopyThread:
    """Follows the snapshots of an application, and publishes facts after each step.

    Args:
        catalog: The application and its stores.
        config: Its settings.
        open_broker: Opens the log.
        name: The instance; None: a temporary folder.
        database: Where the copy is kept, in place of files.
        restarts: Whether the applier restarts after a failure.
        choose: Returns the shards to keep, by the newest record and the shards that are kept; None:
            it is not known yet.
        on_change: Called after the facts have changed.
        source: Asks other instances for shards; None: all come from the changelogs.
        holders: Returns the instances that have a ready copy of a shard; None: it is not known yet.
    """

    def __init__(
        self,
        catalog: Catalog,
        config: StreamsConfig,
        open_broker: Callable[[], Broker],
        *,
        name: str | None,
        database: Database | None,
        restarts: bool,
        choose: Callable[[SnapshotRecord, frozenset[Shard]], frozenset[Shard] | None],
        on_change: Callable[[], None],
        source: ShardSource | None = None,
        holders: Callable[[Shard], Sequence[str] | None] = lambda _: (),
    ) -> None:
        self.snapshots = KeptSnapshots()
        self.facts = CopyFacts()
        """The state of the copy after the last step."""
        self.failure: Exception | None = None
        """The error with which the applier has stopped."""
        self._catalog = catalog
        self._config = config
        self._open_broker = open_broker
        self._name = name
        self._given = database
        self._restarts = restarts
        self._choose = choose
        self._on_change = on_change
        self._source = source
        self._holders = holders
        self._stepped_at = time.monotonic()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._files: InstanceFiles | None = None

    def start(self) -> None:
        """Open the copy, and follow the application in the background.

        Raises:
            QueryError: Another instance of the same name runs on this machine.
            BrokerError: The log does not answer.
        """
        try:
            broker, database = self._open()
        except BaseException:
            self._close_files()
            raise
        self._thread = threading.Thread(
            target=self._run,
            args=(broker, database),
            name=f"applier-{self._name or 'private'}",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """Stop following, and close the copy."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        self.snapshots.clear()
        self._close_files()

    def is_alive(self) -> bool:
        """Return whether the applier works."""
        return self.failure is None and time.monotonic() - self._stepped_at <= _STALLED_SECONDS

    def _open(self) -> tuple[Broker, Database]:
        broker = self._open_broker()
        try:
            return broker, self._open_database(broker)
        except BaseException:
            with suppress(StreamsError):
                broker.close()
            raise

    def _open_database(self, broker: Broker) -> Database:
        if self._given is not None:
            return self._given
        if self._files is None:
            home = ApplicationHome.of(self._config, broker.cluster_id())
            self._files = InstanceFiles(home, self._name)
        return self._files.open()

    def _close_files(self) -> None:
        if self._files is not None:
            self._files.close()

    def _run(self, broker: Broker, database: Database) -> None:
        is_open = True
        while not self._closing.is_set():
            try:
                if not is_open:
                    broker, database = self._open()
                is_open = False
                self._follow(broker, database)
            except Exception as error:
                _log.exception("The applier of instance %s has stopped.", self._name)
                # A frame of the traceback may refer to a view, and that keeps the database locked.
                self.failure = error.with_traceback(None)
                self.facts = CopyFacts()
                self._on_change()
                if not self._restarts:
                    return
                self._closing.wait(_RESTART_SECONDS)

    def _follow(self, broker: Broker, database: Database) -> None:
        """Follow the application until the instance is closed, or something fails."""
        reader = CopyReader(
            broker,
            self._catalog.layout,
            self._catalog.snapshots_topic,
            database,
            now_ms(),
            self._limits(broker),
            self.snapshots,
        )
        imports = None
        if self._source is not None:
            layout = self._catalog.layout
            imports = ShardImports(self._source, self._holders, layout, reader, database)
        is_away = False
        try:
            while not self._closing.is_set():
                try:
                    reader.step(now_ms(), _STEP_SECONDS)
                    self._keep(reader, imports)
                    is_away = False
                except BrokerError as error:
                    _log.log(
                        logging.DEBUG if is_away else logging.WARNING,
                        "Instance %s cannot read, and answers from what it has: %s",
                        self._name,
                        error,
                    )
                    is_away = True
                self._publish(reader)
                if is_away:
                    self._closing.wait(_PAUSE_SECONDS)
        finally:
            # The database stays locked while a view of it is open.
            self.snapshots.clear()
            if imports is not None:
                imports.close()
            for close in (reader.close, database.close, broker.close):
                with suppress(StreamsError):
                    close()

    def _limits(self, broker: Broker) -> ApplierLimits:
        is_exact = self._config.processing_guarantee == "exactly_once_v2"
        return ApplierLimits(
            # Without transactions nothing but records takes an offset.
            marker_offsets=0 if broker.is_local or not is_exact else 1,
            has_copies=not is_exact,
            delete_retention_ms=self._delete_retention_ms(),
        )

    def _delete_retention_ms(self) -> int:
        """Return the shortest time for which a changelog keeps deletions."""
        settings = [
            changelog_settings(store.builder, self._config)
            for store in self._catalog.stores.values()
        ]
        return min(
            (int(each[_RETENTION]) for each in settings if _RETENTION in each),
            default=ApplierLimits.delete_retention_ms,
        )

    def _keep(self, reader: CopyReader, imports: ShardImports | None) -> None:
        """Keep the shards that this instance should have by the newest record."""
        record, kept = reader.applier.newest, reader.applier.kept
        if record is None or reader.applier.problem is not None:
            return
        chosen = self._choose(record, kept)
        if chosen is not None and imports is not None:
            chosen -= imports.hold_back(chosen - kept)
        if chosen is not None and chosen != kept:
            reader.applier.keep(chosen)
            reader.step(now_ms())

    def _publish(self, reader: CopyReader) -> None:
        self._stepped_at = time.monotonic()
        self.failure = None
        facts = facts_of(reader.applier)
        if facts != self.facts:
            self.facts = facts
            self._on_change()


def now_ms() -> int:
    """Return the time in milliseconds."""
    return time.time_ns() // 1_000_000
