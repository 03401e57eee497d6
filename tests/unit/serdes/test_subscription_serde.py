"""Subscriptions and responses of a foreign-key join as bytes."""

from __future__ import annotations

import pytest

from headrace import Serdes
from headrace.serdes.subscription_serde import (
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
)

DIGEST = bytes(range(16))


class Named:
    """A serde that writes which topic it is for."""

    def __init__(self, topic: str = "") -> None:
        self.topic = topic

    def for_topic(self, topic: str, *, is_key: bool) -> Named:
        return Named(f"{topic}/{is_key}")

    def serialize(self, value: str) -> bytes:
        return f"{self.topic}:{value}".encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


@pytest.mark.parametrize("digest", [None, DIGEST])
@pytest.mark.parametrize("key", ["", "key"])
def test_a_subscription_comes_back(digest: bytes | None, key: str) -> None:
    serde = SubscriptionSerde(Serdes.string())
    subscription = Subscription(digest, 3, key, 70_000)

    assert serde.deserialize(serde.serialize(subscription)) == subscription


@pytest.mark.parametrize("digest", [None, DIGEST])
@pytest.mark.parametrize("value", [None, "", "value"])
def test_a_response_comes_back(digest: bytes | None, value: str | None) -> None:
    serde = ResponseSerde(Serdes.string())
    response = Response(digest, value, 2)

    assert serde.deserialize(serde.serialize(response)) == response


def test_the_layouts_are_the_documented_ones() -> None:
    subscription = SubscriptionSerde(Serdes.string()).serialize(Subscription(DIGEST, 2, "k", 5))
    response = ResponseSerde(Serdes.string()).serialize(Response(DIGEST, "v", 5))

    assert subscription == b"\x01\x02\x00\x00\x00\x05" + DIGEST + b"k"
    assert response == b"\x03\x00\x00\x00\x05" + DIGEST + b"v"


def test_primary_keys_have_a_topic_name_of_their_own() -> None:
    serde = SubscriptionSerde(Named()).for_topic("there", is_key=False)

    assert serde.serialize(Subscription(None, 0, "k", 0)).endswith(b"there-pk/True:k")


def test_foreign_values_belong_to_the_topic_of_the_responses() -> None:
    serde = ResponseSerde(Named()).for_topic("back", is_key=False)

    assert serde.serialize(Response(None, "v", 0)).endswith(b"back/False:v")
