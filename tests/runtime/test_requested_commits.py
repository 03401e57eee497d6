"""A commit that a processor asks for: at once in the test driver, at the end of a batch elsewhere.

`docs/differences.md` has the reason.
"""

from __future__ import annotations

from pathlib import Path

from headrace import Processor, ProcessorContext, Record, Topology
from headrace.brokers.embedded import EmbeddedLog
from headrace.brokers.log import TopicPartition
from headrace.testing import DriverFactory
from tests.runtime.in_process import InProcessQuery

VALUES = ["a", "commit", "b"]


class Counter(Processor[str, str, str, int]):
    """Remembers in a field how many records it has seen since the last commit."""

    def init(self, context: ProcessorContext[str, int]) -> None:
        super().init(context)
        self.seen = 0

    def process(self, record: Record[str, str]) -> None:
        self.seen += 1
        self.context.forward(record.with_value(self.seen))
        if record.value == "commit":
            self.context.commit()


def counting() -> Topology:
    topology = Topology()
    topology.add_source("source", "in", key=str, value=str)
    topology.add_processor("count", Counter, "source")
    topology.add_sink("sink", "out", "count", key=str, value=int)
    return topology


def test_the_test_driver_commits_after_the_record_that_asked(
    topology_driver: DriverFactory,
) -> None:
    driver = topology_driver(counting(), commit_each_record=False)

    driver.create_input_topic("in").pipe_key_value_list([("k", value) for value in VALUES])

    seen = driver.create_output_topic("out").read_values_to_list()
    assert seen == [1, 2, 1]


def test_a_batch_commits_at_its_end(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "topics.db")
    log.create_topic("in")
    log.create_topic("out")
    log.append([("in", 0, 1, b"k", value.encode(), None) for value in VALUES])
    query = InProcessQuery(counting(), tmp_path)

    query.run()

    out = TopicPartition("out", 0)
    records = [record for chunk in log.read(out, 0, 3) for record in chunk]
    assert [int.from_bytes(record.value, "big") for record in records] == [1, 2, 3]
    log.close()
