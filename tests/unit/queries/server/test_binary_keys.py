"""Keys of any bytes and of 600 bytes, in every way in which HTTP names a key."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.unit.queries.server.served_application import ServedApplication

ROWS = {
    b"\x00": b"zero",
    b"/../%2F?": b"a path",
    bytes(range(256)) * 2 + bytes(88): b"every byte",
    b"\xff": b"\xff",
    b"\xff" * 600: b"\xff\x00",
}
KEYS = sorted(ROWS)
LONG = [key for key in KEYS if len(key) == 600]


def text(data: bytes) -> str:
    """Return bytes as JSON and URLs have them."""
    return urlsafe_b64encode(data).decode()


def ids(key: bytes) -> str:
    return f"{key[:4].hex()}-{len(key)}"


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApplication]:
    started = ServedApplication(tmp_path_factory.mktemp("served"))
    started.write("blobs", *ROWS.items(), at=5)
    started.run()
    yield started
    started.close()


@pytest.mark.parametrize("key", KEYS, ids=ids)
def test_a_key_is_read_by_its_url_and_by_post(application: ServedApplication, key: bytes) -> None:
    by_url = application.get(f"/v1/stores/blobs/keys/{text(key)}")
    by_post = application.post("/v1/stores/blobs/get", {"key": text(key)})
    raw = application.get(f"/v1/stores/blobs/keys/{text(key)}", {"encoding": "bytes"})

    assert by_url.json() == by_post.json() == text(ROWS[key])
    assert raw.content == ROWS[key]


def test_a_key_that_differs_in_the_last_of_600_bytes_is_another(
    application: ServedApplication,
) -> None:
    assert len(LONG) == 2
    for key in LONG:
        other = key[:-1] + bytes([key[-1] ^ 1])
        assert application.get(f"/v1/stores/blobs/keys/{text(other)}").status_code == 404


def entries(application: ServedApplication, **params: Any) -> list[tuple[str, str]]:
    """Return all pages of two entries."""
    found: list[tuple[str, str]] = []
    while True:
        answer = application.get("/v1/stores/blobs/entries", {"limit": 2, **params})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += [(row["key"], row["value"]) for row in page["data"]]
        if page["next"] is None:
            return found
        params["cursor"] = page["next"]


def rows(*keys: bytes) -> list[tuple[str, str]]:
    return [(text(key), text(ROWS[key])) for key in keys]


def test_ranges_and_pages_are_in_the_order_of_the_bytes(application: ServedApplication) -> None:
    middle = {"from": text(KEYS[1]), "to": text(KEYS[3])}

    assert entries(application) == rows(*KEYS)
    assert entries(application, order="desc") == rows(*reversed(KEYS))
    assert entries(application, **middle) == rows(*KEYS[1:4])
    assert entries(application, prefix=text(b"\xff" * 599)) == rows(b"\xff" * 600)


def test_several_reads_sql_and_changes_have_the_same_keys(application: ServedApplication) -> None:
    reads = [{"store": "blobs", "read": "key", "key": text(key)} for key in KEYS]
    several = application.post("/v1/query", {"reads": reads}).json()["data"]
    sql = application.post("/v1/sql", {"sql": "SELECT key FROM blobs ORDER BY key"}).json()
    since = application.token()
    application.write("blobs", *((key, ROWS[key]) for key in LONG), at=6)
    application.run()
    events = application.events("/v1/stores/blobs/changes", 3, [("Last-Event-ID", since)])

    assert [[(row["key"], row["value"]) for row in read] for read in several] == [
        rows(key) for key in KEYS
    ]
    assert len(sql["data"]) == len(KEYS)
    first, second = (dict(line.split(": ", 1) for line in each.splitlines()) for each in events[1:])
    _, again = application.events("/v1/stores/blobs/changes", 2, [("Last-Event-ID", first["id"])])
    changed = [msgspec.json.decode(each["data"]) for each in (first, second)]
    assert [(each["key"], each["value"]) for each in changed] == rows(*LONG)
    assert again == events[2], "an event with a long key can be resumed behind"
