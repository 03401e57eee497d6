"""The proxy of the example exactly-once puts its own addresses into the answers of brokers."""

from __future__ import annotations

import asyncio

import pytest

from headrace.examples.exactly_once.addresses import FIND_COORDINATOR, METADATA, readdressed


def texts(length_size: int, *values: str) -> list[bytes]:
    """Return texts with lengths of two bytes, or compact ones."""
    if length_size == 2:
        return [len(each).to_bytes(2) + each.encode() for each in values]
    return [bytes([len(each) + 1]) + each.encode() for each in values]


def metadata(version: int, *brokers: tuple[str, int]) -> bytes:
    is_flexible = version >= 9
    answer = b"\0\0\0\7" + b"\0" * is_flexible + (b"\0\0\0\0" if version >= 3 else b"")
    answer += bytes([len(brokers) + 1]) if is_flexible else len(brokers).to_bytes(4)
    for host, port in brokers:
        host_text, rack = texts(1 if is_flexible else 2, host, "rack-1")
        answer += b"\0\0\0\1" + host_text + port.to_bytes(4)
        answer += (rack if version >= 1 else b"") + b"\0" * is_flexible
    return answer + b"the rest"


def coordinator(version: int, host: str, port: int) -> bytes:
    if version >= 4:
        key, name = texts(1, "group", host)
        one = key + b"\0\0\0\1" + name + port.to_bytes(4) + b"\0\0" + b"\0" + b"\0"
        return b"\0\0\0\7" + b"\0" + b"\0\0\0\0" + b"\2" + one + b"\0"
    is_flexible = version == 3
    (name,) = texts(1 if is_flexible else 2, host)
    none = b"\0" if is_flexible else b"\xff\xff"
    answer = b"\0\0\0\7" + b"\0" * is_flexible
    answer += b"\0\0\0\0\0\0" + none if version >= 1 else b"\0\0"
    return answer + b"\0\0\0\1" + name + port.to_bytes(4) + b"\0" * is_flexible


async def next_port(broker: str) -> int:
    return int(broker.rpartition(":")[2]) + 1


@pytest.mark.parametrize("version", [0, 1, 3, 8, 9, 12])
def test_metadata_has_new_addresses_and_keeps_the_rest(version: int) -> None:
    answer = metadata(version, ("broker-one.example", 9092), ("b", 9094))

    found = asyncio.run(readdressed(answer, METADATA, version, next_port))

    assert found == metadata(version, ("127.0.0.1", 9093), ("127.0.0.1", 9095))


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_coordinator_has_a_new_address(version: int) -> None:
    answer = coordinator(version, "broker-one.example", 9092)

    found = asyncio.run(readdressed(answer, FIND_COORDINATOR, version, next_port))

    assert found == coordinator(version, "127.0.0.1", 9093)


def test_an_answer_without_a_coordinator_stays() -> None:
    answer = coordinator(2, "", -1 & 0xFFFFFFFF)

    assert asyncio.run(readdressed(answer, FIND_COORDINATOR, 2, next_port)) == answer
