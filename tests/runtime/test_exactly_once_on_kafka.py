"""The example exactly-once on a broker: a cut of the network, and then a crash after step 3."""

from __future__ import annotations

from pathlib import Path

from headrace import StreamsConfig
from headrace.brokers import open_log
from headrace.examples.exactly_once.app import bookings
from headrace.examples.exactly_once.cutting import CuttableNetwork
from headrace.examples.exactly_once.feed import TOPICS, feed
from headrace.examples.exactly_once.main import booked
from headrace.examples.feeding import Encoding
from headrace.runtime.checkpoint.batch_log import MemoryBatchLog
from headrace.runtime.in_process import QUERY_ID, InProcessQuery
from tests.kafka_broker import RunningBroker


def test_only_the_crash_books_twice_and_only_without_transactions(
    kafka: RunningBroker, tmp_path: Path
) -> None:
    direct = StreamsConfig(bootstrap_servers=kafka.address, state_dir=tmp_path)
    log = open_log(direct)
    for topic in (*TOPICS, "booked-payments", "revenue-by-account", "payments-dead"):
        log.create_topic(topic, partitions=2)
    log.append(map(Encoding(bookings(), TOPICS).raw, feed()))
    log.close()

    with CuttableNetwork(kafka.address) as network:
        cut_off = direct.with_settings(bootstrap_servers=network.address)
        for guarantee, expected in (("at_least_once", 42), ("exactly_once_v2", 21)):
            program = bookings(guarantee)  # type: ignore[arg-type]
            before, cuts = booked(direct), network.cuts
            batches = MemoryBatchLog(QUERY_ID)

            network.cut_at_write("booked-payments")
            first = InProcessQuery(
                program.topology, program.config.overlaid_by(cut_off), batch_log=batches
            )
            end = first.planner.next(first.position)
            batches.plan(0, end)
            first.replay(first.position, end)  # steps 1 to 3
            first.log.close()
            after_cut = booked(direct) - before
            second = InProcessQuery(
                program.topology, program.config.overlaid_by(direct), batch_log=batches
            )
            second.replay(second.position, end)
            second.log.close()

            ids = booked(direct) - before
            assert network.cuts == cuts + 1
            assert (after_cut.total(), len(after_cut)) == (21, 21)
            assert (ids.total(), len(ids)) == (expected, 21)
