"""The story of the document: a producer, one consumer, three, a crash, a seek, and a reset."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from typing import Any

from headrace import StreamsConfig
from headrace.clients import AdminClient, KafkaConsumer
from headrace.examples.clients.consuming import (
    GROUP,
    SECONDS,
    Crash,
    Printed,
    Sheet,
    SimpleConsumer,
    reset_tool,
)
from headrace.examples.clients.producing import LOGS, TOPIC, fill_the_buffer, send_all, send_logs

ALL_TOPICS = {TOPIC: 4, LOGS: 2}


def create_topics(config: StreamsConfig) -> None:
    with AdminClient(config) as admin:
        for topic, partitions in ALL_TOPICS.items():
            admin.create_topic(topic, partitions=partitions, if_not_exists=True)


def produce(config: StreamsConfig) -> None:
    """Send 100 records: with batches, and one by one; then fill the buffer."""
    send_all(config, batch_size=16_384, linger="5ms")
    send_all(config, batch_size=0)
    print(fill_the_buffer(config))


def read_with(config: StreamsConfig, consumers: int, records: int, **settings: Any) -> Counter[int]:
    """Return how many records each consumer of a group has printed, once all are read."""
    sheet = Sheet()
    threads = [
        SimpleConsumer(number, [LOGS], config, sheet.add, **settings)
        for number in range(1, consumers + 1)
    ]
    for thread in threads:
        thread.start()
    try:
        lines = sheet.await_that(lambda lines: len(lines) >= records)
    finally:
        for thread in threads:
            thread.shutdown()
    return Counter(line.consumer for line in lines)


def crash(config: StreamsConfig, **settings: Any) -> tuple[list[Printed], list[Printed]]:
    """Let a consumer print records and end before its commit.

    Returns what it had not committed, and what the consumer that took over printed again.
    """
    sheet, cause = Sheet(), Crash()
    threads = [
        SimpleConsumer(number, [LOGS], config, sheet.add, crash=cause, **settings)
        for number in (1, 2, 3)
    ]
    for thread in threads:
        thread.start()
    try:
        await_members(config, 3)  # two consumers have a partition, the third stands by
        cause.arm()
        send_logs(config, 20)
        return _taken_over(sheet, cause.crashed())
    finally:
        for thread in threads:
            thread.shutdown()


def await_members(config: StreamsConfig, count: int) -> None:
    """Wait until a group has so many members, and two of them have a partition each."""
    end = time.monotonic() + SECONDS
    with AdminClient(config) as admin:
        while True:
            sizes = [len(member.partitions) for member in admin.describe_group(GROUP)]
            if len(sizes) == count and sizes.count(1) == 2:
                return
            if time.monotonic() > end:
                msg = f"The group has members with {sizes} partitions."
                raise TimeoutError(msg)
            time.sleep(0.05)


def _taken_over(sheet: Sheet, crashed: SimpleConsumer) -> tuple[list[Printed], list[Printed]]:
    def of(lines: list[Printed], *, again: bool) -> list[Printed]:
        return [line for line in lines if (line.consumer != crashed.id) == again]

    crashed.join(SECONDS)
    lost = of(sheet.lines, again=False)
    lost_offsets = {(line.partition, line.offset) for line in lost}

    def twice(lines: list[Printed]) -> list[Printed]:
        return [
            line for line in of(lines, again=True) if (line.partition, line.offset) in lost_offsets
        ]

    sheet.await_that(lambda lines: len(twice(lines)) >= len(lost))
    return lost, twice(sheet.lines)


def main(config: StreamsConfig) -> int:
    """Run the story; return 0 if the crash lost nothing."""
    logging.basicConfig(
        level=logging.INFO, format="%(threadName)s - %(message)s", stream=sys.stdout
    )
    logging.getLogger("headrace").setLevel(logging.WARNING)
    create_topics(config)
    produce(config)
    send_logs(config, 40)
    with KafkaConsumer(config, key=str, value=str) as consumer:
        ends = consumer.end_offsets(consumer.partitions_for(LOGS))
    print("One consumer:", dict(read_with(config, 1, 40)))
    lost, again = crash(config)
    print(f"{len(lost)} records were printed and not committed; {len(again)} were printed again.")
    total = sum(ends.values())
    print("From offset 0 again:", dict(read_with(config, 1, total, start_offset=0)))
    for (topic, partition), offset in reset_tool(config, LOGS, 5).items():
        print(f"{topic}-{partition}: the group continues at offset {offset}")
    return 0 if lost and len(again) >= len(lost) else 1
