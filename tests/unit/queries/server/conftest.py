from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.queries.server.served_application import ServedApplication

MINUTE = 60_000


def fill(application: ServedApplication) -> None:
    """Run two batches over records for every store."""
    application.write("lines", (b"alice", b"x"), (b"bob", b"y"), (b"a/b c", b"z"), at=1_000)
    application.write("lines", (b"alice", b"x"), at=MINUTE + 5)
    application.write("people", (_long(7), b'{"name":"Ann","age":30}'), at=5)
    application.write("blobs", (b"\xfb\xff", b"\x00\x01"), at=5)
    application.write("prices", (b"tea", _long(10)), at=1_000)
    application.write("countries", (b"AT", b"Austria"), at=5)
    application.write("pairs", (b'{"left":"l","right":1}', b"one"), at=5)
    application.run()
    application.write("lines", (b"bob", b"bad"), (b"carol", b"ok"), at=MINUTE + 10)
    application.write("prices", (b"tea", _long(12)), at=2_000)
    application.write("people", (_long(8), b'{"name":"Bob","age":40}'), at=6)
    application.run()


def _long(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    """An application with records in every store; tests of a module share it, and only read."""
    started = ServedApplication(tmp_path_factory.mktemp("served"))
    fill(started)
    yield started
    started.close()
