"""Changes as bytes."""

from __future__ import annotations

import pytest

from headrace import Serdes
from headrace.serdes.change_serde import ChangeSerde

SERDE = ChangeSerde(Serdes.string())


@pytest.mark.parametrize("new", [None, "", "new"])
@pytest.mark.parametrize("old", [None, "", "the old one"])
@pytest.mark.parametrize("latest", [True, False])
def test_a_change_comes_back(new: str | None, old: str | None, latest: bool) -> None:
    assert SERDE.deserialize(SERDE.serialize((new, old, latest))) == (new, old, latest)


def test_the_layout_is_the_documented_one() -> None:
    assert SERDE.serialize(("new", "old", True)) == b"\x07\x00\x00\x00\x03newold"
    assert SERDE.serialize(("new", None, False)) == b"\x01new"
    assert SERDE.serialize((None, "old", True)) == b"\x06old"
    assert SERDE.serialize((None, None, True)) == b"\x04"


def test_the_serde_inside_is_asked_about_the_topic() -> None:
    class Named:
        def __init__(self, topic: str = "") -> None:
            self.topic = topic

        def for_topic(self, topic: str, *, is_key: bool) -> Named:
            return Named(f"{topic} {is_key}")

        def serialize(self, value: str) -> bytes:
            return f"{self.topic}: {value}".encode()

        def deserialize(self, data: bytes) -> str:
            return data.decode()

    serde = ChangeSerde(Named()).for_topic("between", is_key=False)

    assert serde.serialize(("new", None, False)) == b"\x01between False: new"
