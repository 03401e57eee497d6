"""An application that counts keys in this process, for tests of queries."""

from __future__ import annotations

from pathlib import Path

from headrace import Materialized, StreamsBuilder, StreamsConfig
from headrace.brokers import open_log
from headrace.queries.catalog import catalog_of
from tests.runtime.in_process import InProcessQuery

COUNTS = "application-counts-changelog"


class Application:
    """An application that counts keys, batch by batch."""

    def __init__(self, folder: Path) -> None:
        self.config = StreamsConfig(application_id="application", state_dir=folder)
        self.log = open_log(self.config)
        self.log.create_topic("lines", partitions=2)
        builder = StreamsBuilder()
        lines = builder.stream("lines", key=str, value=str).group_by_key()
        lines.count(materialized=Materialized("counts"))
        self.topology = builder.build()
        self.query = InProcessQuery(self.topology, folder)
        self.catalog = catalog_of(self.query.plan)

    def run(self, *keys: bytes) -> None:
        """Run a batch with these keys in both partitions."""
        self.log.append(
            [("lines", partition, 0, key, b"", None) for key in keys for partition in range(2)]
        )
        self.query.run()

    def close(self) -> None:
        self.query.log.close()
        self.log.close()
