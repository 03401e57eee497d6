"""The contract of both logs; see `TopicLog`."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from headrace import (
    BrokerError,
    ConsumerRecord,
    GroupNotEmptyError,
    OffsetOutOfRangeError,
    ProducerRecord,
    RecordMetadata,
    RecordRefusedError,
    StreamsConfig,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.brokers import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, open_log
from headrace.brokers.log import LeadershipKind
from headrace.brokers.sessions import Broker, RebalanceListener
from headrace.records import Headers
from tests.brokers.appending import assert_holds, record, values
from tests.brokers.consuming import Named
from tests.waiting import await_that


def test_a_log_has_one_cluster_id_that_can_name_a_folder(
    log: Broker, broker_settings: dict[str, Any]
) -> None:
    second = open_log(StreamsConfig(**broker_settings))

    assert re.fullmatch(r"[A-Za-z0-9_-]+", log.cluster_id())
    assert second.cluster_id() == log.cluster_id()
    assert (log.cluster_id() == "embedded") is log.is_local
    second.close()


def test_a_log_states_where_it_is_and_how_an_application_uses_it(
    log: Broker, broker_settings: dict[str, Any]
) -> None:
    is_file = "embedded_path" in broker_settings
    kind = LeadershipKind.DIRECTORY_LOCK if is_file else LeadershipKind.GROUP

    assert (log.is_local, log.creates_topics, log.leadership()) == (is_file, is_file, kind)
    assert log.address == str(broker_settings["embedded_path" if is_file else "bootstrap_servers"])


def test_a_recreated_topic_has_another_id(log: Broker, named: Named) -> None:
    one, other = named("one"), named("other")
    for name in (one, other):
        log.create_topic(name)
    before = log.topic_ids([one, other])

    log.delete_topic(one)
    log.create_topic(one)
    after = log.topic_ids([one, other])

    assert set(before) == {one, other}
    assert len({*before.values(), *after.values()}) == 3
    assert before[other] == after[other]


def test_a_topic_that_is_not_there_has_no_id(log: Broker, topic: str, named: Named) -> None:
    missing = named("missing")

    with pytest.raises(UnknownTopicError, match=missing):
        log.topic_ids([topic, missing])
    assert log.topic_ids([]) == {}


def test_a_topic_has_the_partitions_and_settings_it_was_created_with(
    log: Broker, named: Named
) -> None:
    name = named("orders")

    log.create_topic(name, partitions=3, settings={"cleanup.policy": "compact"})

    assert log.partition_count(name) == 3
    described = log.describe_topic(name)
    assert (described.topic, described.partitions) == (name, 3)
    assert described.settings["cleanup.policy"] == "compact"
    assert name in log.list_topics()


def test_the_replication_factor_is_no_setting_of_the_topic_itself(
    log: Broker, named: Named
) -> None:
    for factor in ("1", "-1"):
        name = named(f"orders{factor}")

        log.create_topic(name, settings={"replication.factor": factor, "retention.ms": "-1"})

        settings = log.describe_topic(name).settings
        assert settings["retention.ms"] == "-1"
        assert "replication.factor" not in settings


def test_a_topic_cannot_be_created_twice(log: Broker, topic: str) -> None:
    with pytest.raises(TopicExistsError, match=topic):
        log.create_topic(topic)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "../../etc/passwd", "a\0b"]
)
def test_a_name_that_could_be_a_path_is_no_topic(log: Broker, name: str) -> None:
    with pytest.raises(BrokerError, match="name of a topic"):
        log.create_topic(name)


def test_a_topic_grows_and_keeps_its_records(log: Broker, topic: str) -> None:
    log.append([record(topic, b"a", partition=1)])

    log.grow_topic(topic, partitions=4)

    assert log.partition_count(topic) == 4
    assert values(log, TopicPartition(topic, 1)) == [b"a"]
    assert log.append([record(topic, b"b", partition=3)]) == [RecordMetadata(topic, 3, 0)]


def test_a_topic_does_not_shrink(log: Broker, topic: str) -> None:
    log.grow_topic(topic, partitions=2)
    with pytest.raises(BrokerError, match="cannot have fewer"):
        log.grow_topic(topic, partitions=1)


def test_a_topic_can_be_deleted_and_recreated(log: Broker, topic: str, named: Named) -> None:
    partition = TopicPartition(topic, 0)
    log.append([record(topic, b"old")])
    log.commit_offsets(named("group"), {partition: OffsetAndMetadata(1)})

    log.delete_topic(topic)
    gone = topic not in log.list_topics()
    log.create_topic(topic)

    assert gone
    assert log.end_offsets([partition]) == {partition: 0}
    assert log.committed_offsets(named("group")) == {}


def test_an_unknown_topic_is_named_with_the_nearest(log: Broker, topic: str) -> None:
    wrong = topic.replace("orders", "order")

    with pytest.raises(UnknownTopicError) as caught:
        log.partition_count(wrong)

    assert caught.value.topic == wrong
    assert topic in caught.value.nearest
    assert topic in str(caught.value)


def test_nothing_is_made_of_an_unknown_topic(log: Broker, topic: str, named: Named) -> None:
    unknown = named("never-made")
    partition = TopicPartition(unknown, 0)
    tries: list[Callable[[], object]] = [
        lambda: log.describe_topic(unknown),
        lambda: log.delete_topic(unknown),
        lambda: log.grow_topic(unknown, partitions=2),
        lambda: log.append([record(unknown, b"a")]),
        lambda: list(log.read(partition, 0, 1)),
        lambda: log.beginning_offsets([partition]),
        lambda: log.end_offsets([partition]),
        lambda: log.offsets_for_times({partition: 0}),
        lambda: log.delete_records({partition: 0}),
        lambda: log.commit_offsets(named("group"), {partition: OffsetAndMetadata(1)}),
    ]

    for attempt in tries:
        with pytest.raises(UnknownTopicError, match=unknown):
            attempt()

    assert unknown not in log.list_topics()


def test_a_topic_that_another_deletes_is_missed(
    log: Broker, broker_settings: dict[str, Any], topic: str, named: Named
) -> None:
    partition = TopicPartition(topic, 0)
    log.append([record(topic, b"a")])
    assert_holds(log, partition, [b"a"])
    other = open_log(StreamsConfig(**broker_settings))
    other.delete_topic(topic)
    other.close()
    tries: list[Callable[[], object]] = [
        lambda: log.end_offsets([partition]),
        lambda: list(log.read(partition, 0, 1)),
        lambda: log.commit_offsets(named("group"), {partition: OffsetAndMetadata(1)}),
        lambda: log.append([record(topic, b"b")]),
    ]

    for attempt in tries:
        with pytest.raises(UnknownTopicError, match=topic):
            attempt()


def test_a_topic_that_another_lets_grow_is_read_whole(
    log: Broker, broker_settings: dict[str, Any], topic: str
) -> None:
    partition = TopicPartition(topic, 2)
    log.end_offsets([TopicPartition(topic, 0)])
    other = open_log(StreamsConfig(**broker_settings))
    other.grow_topic(topic, partitions=3)
    other.append([record(topic, b"a", partition=2)])
    other.close()

    assert log.end_offsets([partition]) == {partition: 1}
    assert values(log, partition) == [b"a"]
    log.append([record(topic, b"b", partition=2)])
    assert values(log, partition) == [b"a", b"b"]


@pytest.mark.parametrize("number", [2, 99, -1])
def test_an_unknown_partition_is_named(log: Broker, topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)

    with pytest.raises(UnknownTopicError, match=f"partition {number} in"):
        log.append([record(topic, b"a", partition=number)])
    with pytest.raises(UnknownTopicError, match=f"partition {number} in"):
        log.end_offsets([partition])


def test_records_come_back_as_they_were_written(log: Broker, topic: str) -> None:
    headers = Headers([("a", b"1"), ("b", None), ("a", b"")])
    written = [
        ProducerRecord(topic, 1, 1_234, b"key", b"value", headers),
        ProducerRecord(topic, 1, 5, None, b""),
        ProducerRecord(topic, 1, 1, b"", None),
    ]

    where = log.append(written)

    assert where == [RecordMetadata(topic, 1, offset) for offset in range(3)]
    read = [each for batch in log.read(TopicPartition(topic, 1), 0, 3) for each in batch]
    assert read == [
        ConsumerRecord(topic, 1, 0, 1_234, b"key", b"value", headers),
        ConsumerRecord(topic, 1, 1, 5, None, b"", Headers()),
        ConsumerRecord(topic, 1, 2, 1, b"", None, Headers()),
    ]


def test_a_range_includes_its_start_and_not_its_end(log: Broker, topic: str) -> None:
    log.append([record(topic, b"%d" % number) for number in range(10)])
    partition = TopicPartition(topic, 0)

    assert values(log, partition, 3, 6) == [b"3", b"4", b"5"]
    assert values(log, partition, 9, 10) == [b"9"]
    assert values(log, partition, 4, 4) == []


def test_a_long_range_is_read_whole_in_several_lists(log: Broker, topic: str) -> None:
    log.append([record(topic, b"%d" % number) for number in range(12_000)])

    batches = list(log.read(TopicPartition(topic, 0), 0, 12_000))

    assert [each.offset for batch in batches for each in batch] == list(range(12_000))
    assert len(batches) > 1


def test_ranges_are_read_in_any_order_and_at_the_same_time(log: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    log.append([record(topic, b"%d" % number) for number in range(300)])
    log.append([record(topic, b"-%d" % number, partition=1) for number in range(300)])
    chance = Random(1)

    for _ in range(100):
        start, end = sorted(chance.sample(range(301), 2))
        partition, sign = chance.choice([(first, b""), (second, b"-")])
        others = log.read(second, start, end)
        head = next(others)[:1]
        read = values(log, partition, start, end)
        del others

        assert read == [sign + b"%d" % number for number in range(start, end)]
        assert [each.value for each in head] == [b"-%d" % start]


def test_large_records_are_read_in_pieces(log: Broker, topic: str) -> None:
    log.append([record(topic, bytes(1_000_000)) for _ in range(20)])

    sizes = [len(batch) for batch in log.read(TopicPartition(topic, 0), 0, 20)]

    assert sum(sizes) == 20
    assert max(sizes) < 10


def test_columns_hold_what_the_records_do(log: Broker, topic: str) -> None:
    headers = Headers([("a", b"1")])
    log.append(
        [
            ProducerRecord(topic, 0, 1_234, b"key", b"value", headers),
            ProducerRecord(topic, 0, 5, None, b""),
            ProducerRecord(topic, 0, 1, b"", None),
        ]
    )
    partition = TopicPartition(topic, 0)

    assert list(log.read_columns(partition, 0, 2)) == [
        ([0, 1], [1_234, 5], [b"key", None], [b"value", b""], [headers, Headers()])
    ]
    assert list(log.read_columns(partition, 1, 3)) == [
        ([1, 2], [5, 1], [None, b""], [b"", None], None)
    ]
    assert list(log.read_columns(partition, 3, 3)) == []


def test_plain_tuples_are_records_too(log: Broker, topic: str, named: Named) -> None:
    written = [(topic, 0, 5, b"k", b"a", None), (topic, 0, 6, None, b"b", [("h", b"1")])]

    where = log.append(written)
    with log.transaction(named("writer"), timeout_ms=30_000) as transaction:
        transaction.append(iter(written))

    assert where == [RecordMetadata(topic, 0, 0), RecordMetadata(topic, 0, 1)]
    assert_holds(log, TopicPartition(topic, 0), [b"a", b"b", b"a", b"b"])
    ((first, second),) = log.read(TopicPartition(topic, 0), 0, 2)
    assert first == ConsumerRecord(topic, 0, 0, 5, b"k", b"a", Headers())
    assert second == ConsumerRecord(topic, 0, 1, 6, None, b"b", Headers([("h", b"1")]))


def test_a_refused_tuple_is_reported_as_a_record(log: Broker, topic: str, named: Named) -> None:
    with (
        pytest.raises(RecordRefusedError, match="timestamp is negative") as caught,
        log.transaction(named("writer")) as transaction,
    ):
        transaction.append([(topic, 0, 5, b"k", b"a", None), (topic, 0, -1, b"k", b"b", None)])

    assert caught.value.record == ProducerRecord(topic, 0, -1, b"k", b"b")
    assert log.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


def test_a_range_can_be_left_early_and_read_again(log: Broker, topic: str) -> None:
    log.append([record(topic, b"%d" % number) for number in range(12_000)])
    partition = TopicPartition(topic, 0)

    batches = log.read(partition, 0, 12_000)
    next(batches)
    del batches

    assert values(log, partition, 11_998) == [b"11998", b"11999"]


def test_a_record_of_one_megabyte_is_accepted(log: Broker, topic: str) -> None:
    large = bytes(range(256)) * 4_000

    log.append([record(topic, large)])

    assert values(log, TopicPartition(topic, 0)) == [large]


def test_partitions_have_offsets_of_their_own(log: Broker, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    log.append([record(topic, b"a"), record(topic, b"b"), record(topic, b"c", partition=1)])

    assert log.beginning_offsets([first, second]) == {first: 0, second: 0}
    assert log.end_offsets([first, second]) == {first: 2, second: 1}


def test_a_record_needs_a_partition(log: Broker, topic: str) -> None:
    with pytest.raises(BrokerError, match="has no partition"):
        log.append([ProducerRecord(topic, None, 0, b"k", b"v")])


def test_a_record_that_is_too_large_is_refused_and_reported(log: Broker, named: Named) -> None:
    name = named("small")
    log.create_topic(name, settings={"max.message.bytes": "1000"})
    large = record(name, b"x" * 2_000)

    with pytest.raises(RecordRefusedError, match=name) as caught:
        log.append([large])

    assert caught.value.record == large


def test_a_compacted_topic_takes_no_record_without_a_key(log: Broker, named: Named) -> None:
    name = named("table")
    log.create_topic(name, settings={"cleanup.policy": "compact"})

    with pytest.raises(RecordRefusedError):
        log.append([record(name, b"v", key=None)])


def test_a_topic_can_stamp_the_time_of_appending(log: Broker, named: Named) -> None:
    name = named("stamped")
    log.create_topic(name, settings={"message.timestamp.type": "LogAppendTime"})

    log.append([record(name, b"a", timestamp=5)])

    ((read,),) = log.read(TopicPartition(name, 0), 0, 1)
    assert read.timestamp > 1_600_000_000_000


def test_offsets_are_found_by_time(log: Broker, topic: str) -> None:
    log.append([record(topic, b"", timestamp=time) for time in (10, 30, 20, 40)])
    partition = TopicPartition(topic, 0)

    found = {
        time: log.offsets_for_times({partition: time})[partition] for time in (0, 15, 30, 35, 41)
    }

    assert found == {
        0: OffsetAndTimestamp(0, 10),
        15: OffsetAndTimestamp(1, 30),
        30: OffsetAndTimestamp(1, 30),
        35: OffsetAndTimestamp(3, 40),
        41: None,
    }


def test_deleted_records_move_the_beginning(log: Broker, topic: str) -> None:
    log.append([record(topic, b"%d" % number) for number in range(5)])
    partition = TopicPartition(topic, 0)

    log.delete_records({partition: 3})

    assert log.beginning_offsets([partition]) == {partition: 3}
    assert log.end_offsets([partition]) == {partition: 5}
    assert values(log, partition, 3) == [b"3", b"4"]


def test_a_range_that_is_gone_is_an_error_that_names_what_was_lost(log: Broker, topic: str) -> None:
    log.append([record(topic, b"%d" % number) for number in range(5)])
    partition = TopicPartition(topic, 0)
    log.delete_records({partition: 3})

    with pytest.raises(OffsetOutOfRangeError, match="3 offsets were lost") as caught:
        list(log.read(partition, 0, 5))

    assert (caught.value.offset, caught.value.beginning) == (0, 3)


def test_a_group_remembers_offsets_with_their_metadata(
    log: Broker, topic: str, named: Named
) -> None:
    group = named("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    log.commit_offsets(group, {first: OffsetAndMetadata(3, "täxt"), second: OffsetAndMetadata(5)})
    log.commit_offsets(group, {second: OffsetAndMetadata(4)})

    assert log.committed_offsets(group) == {
        first: OffsetAndMetadata(3, "täxt"),
        second: OffsetAndMetadata(4, ""),
    }
    assert log.committed_offsets(group, [first]) == {first: OffsetAndMetadata(3, "täxt")}
    assert log.committed_offsets(group, []) == {}
    assert group in log.list_groups()


def test_a_group_that_never_was_has_no_offsets_and_no_members(
    log: Broker, topic: str, named: Named
) -> None:
    group = named("never")

    assert log.committed_offsets(group) == {}
    assert log.committed_offsets(group, [TopicPartition(topic, 0)]) == {}
    assert list(log.describe_group(group)) == []
    log.delete_group(group)


def test_a_deleted_group_forgets_its_offsets(log: Broker, topic: str, named: Named) -> None:
    group = named("group")
    log.commit_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(3)})

    log.delete_group(group)

    assert log.committed_offsets(group) == {}
    assert group not in log.list_groups()


def test_an_offset_of_an_unknown_partition_cannot_be_committed(
    log: Broker, topic: str, named: Named
) -> None:
    with pytest.raises(UnknownTopicError, match="partition 7"):
        log.commit_offsets(named("group"), {TopicPartition(topic, 7): OffsetAndMetadata(1)})


def test_a_group_with_members_is_not_changed_from_outside(
    log: Broker, topic: str, named: Named
) -> None:
    group, partition = named("group"), TopicPartition(topic, 0)
    listener = _listener(log)
    member = log.open_consumer(group, {"auto.offset.reset": "earliest", "client.id": "reader"})
    member.subscribe([topic], listener)

    def reads() -> bool:
        member.poll(100, 10)
        return [bool(each.partitions) for each in log.describe_group(group)] == [True]

    await_that(reads, "a member that reads", found=lambda: log.describe_group(group))
    described = log.describe_group(group)
    with pytest.raises(GroupNotEmptyError, match=group):
        log.commit_offsets(group, {partition: OffsetAndMetadata(1)})
    with pytest.raises(GroupNotEmptyError, match=group):
        log.delete_group(group)
    member.close()
    log.commit_offsets(group, {partition: OffsetAndMetadata(1)})

    assert [each.client_id for each in described] == ["reader"]
    assert described[0].partitions == (partition, TopicPartition(topic, 1))


def _listener(log: Broker) -> RebalanceListener:
    return RebalanceListener(log.beginning_offsets, lambda _: None, lambda _: None)
