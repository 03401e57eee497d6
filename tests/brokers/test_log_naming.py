"""The commands in errors of clients name the log that the client uses."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from headrace import StreamsConfig, StreamsError, UnknownTopicError
from headrace.brokers import TopicPartition
from headrace.brokers.opening import log_flags
from headrace.clients import AdminClient, KafkaConsumer, KafkaProducer, ResetTo
from headrace.topology.naming import markers_name
from tests.brokers.consuming import Named
from tests.waiting import PATIENCE

NOWHERE = uuid4().hex
"""A topic that does not exist, and none with a similar name."""


def create(settings: dict[str, Any], topic: str) -> str:
    """Return the advice to create a topic, as a pattern."""
    return re.escape(f"`headrace topics create {topic} {log_flags(StreamsConfig(**settings))}`")


def test_an_admin_client_names_its_log(broker_settings: dict[str, Any], named: Named) -> None:
    group = named("app")
    flags = log_flags(StreamsConfig(**broker_settings))
    with AdminClient(**broker_settings) as admin:
        with pytest.raises(UnknownTopicError, match=create(broker_settings, NOWHERE)):
            admin.describe_topic(NOWHERE)
        admin.create_topic(markers_name(group))
        with pytest.raises(StreamsError, match=re.escape(f"`headrace reset {group} {flags}`")):
            admin.reset_group_offsets(group, ResetTo())


def test_a_producer_names_its_log(broker_settings: dict[str, Any], topic: str) -> None:
    flags = log_flags(StreamsConfig(**broker_settings))
    errors: list[StreamsError | None] = []
    with (
        KafkaProducer(key=str, value=str, **broker_settings) as producer,
        pytest.raises(UnknownTopicError) as caught,
    ):
        producer.send(
            topic, "k", "v", partition=5, on_completion=lambda _, error: errors.append(error)
        ).result(PATIENCE)

    for error in (caught.value, *errors):
        assert f"`headrace topics grow {topic} --partitions 6 {flags}`" in str(error)


def test_a_consumer_names_its_log(broker_settings: dict[str, Any]) -> None:
    with KafkaConsumer(key=str, value=str, group_id=None, **broker_settings) as consumer:
        with pytest.raises(UnknownTopicError, match=create(broker_settings, NOWHERE)):
            consumer.partitions_for(NOWHERE)
        with pytest.raises(UnknownTopicError, match=create(broker_settings, NOWHERE)):
            consumer.end_offsets([TopicPartition(NOWHERE, 0)])
