"""The routes between instances answer from this instance's copy alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import msgspec

from headrace.queries.coordination.local_reads import (
    LocalChanges,
    LocalRead,
    MessagePack,
    ShardRead,
)
from headrace.queries.members import MemberStatus
from headrace.queries.reads import ScanKeys
from headrace.queries.server import create_app
from headrace.queries.transfer.messages import frames, header_of, part_of
from tests.unit.queries.server.served_application import ServedApplication

TOKEN = "0123456789abcdef-secret"


def test_an_instance_tells_what_it_has(application: ServedApplication) -> None:
    status = msgspec.json.decode(application.get("/local/status").content, type=MemberStatus)
    reads = tuple(ShardRead("counts", partition, ScanKeys()) for partition in range(2))
    read = LocalRead(reads=reads, wants_record=True)
    history, _, number = application.token().partition(".")
    changes = LocalChanges(store="counts", partitions=(0, 1), after=f"{history}.{int(number) - 1}")

    read_answer = application.post("/local/read", content=MessagePack.encode(read))
    changes_answer = application.use(
        lambda client: client.post("/local/changes", content=MessagePack.encode(changes))
    )

    assert status.is_ready
    later = msgspec.json.decode(application.get("/local/status").content, type=MemberStatus)
    assert later.run == status.run
    assert later.number > status.number
    answer = MessagePack.decode_answer(read_answer.content)
    assert answer.token == application.token()
    assert sorted(row.key for shard in answer.shards for row in shard.rows) == [
        *(b"a/b c", b"alice", b"bob", b"carol")
    ]
    found = MessagePack.decode_changes_answer(changes_answer.content)
    assert [row.key for shard in found.shards for row in shard.rows] == [b"carol"]


def test_a_message_of_something_else_is_refused(application: ServedApplication) -> None:
    for path in ("/local/read", "/local/changes"):
        for content in (b"", b"\xc1", b'{"a": 1}', MessagePack.encode([1, 2])):
            answer = application.post(path, content=content)
            assert (answer.status_code, answer.json()["code"]) == (422, "BAD_REQUEST")


def test_a_shard_that_is_elsewhere_is_not_asked_for_there(application: ServedApplication) -> None:
    read = LocalRead(reads=(ShardRead("counts", 7, ScanKeys()),))

    answer = MessagePack.decode_answer(
        application.use(
            lambda client: client.post("/local/read", content=MessagePack.encode(read))
        ).content
    )

    assert answer.shards == [] or answer.shards[0].outcome == "not_ready"
    assert answer.token is None


def test_a_shard_is_sent_whole_or_not_at_all(application: ServedApplication) -> None:
    shards = sorted(application.instance.status().shards)

    for name in shards:
        answer = application.get(f"/local/shards/{name}")
        assert answer.status_code == 200
        header, *parts, end = frames([answer.content])
        sent = [part_of(part) for part in parts]
        assert header_of(header).state.snapshot == int(application.token().partition(".")[2])
        assert part_of(end) == sum(len(part) for part in sent if not isinstance(part, int))
    for other in ("0/7", "x/0"):
        answer = application.get(f"/local/shards/{other}")
        assert (answer.status_code, answer.json()["code"]) == (503, "STORE_NOT_READY")
    assert application.get("/local/shards/0/x").status_code == 422


def test_a_shard_needs_the_token(application: ServedApplication, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    config = application.config.with_settings(server_token_file=file)
    locked = create_app(
        SimpleNamespace(topology=application.topology, config=config, instance=application.instance)
    )
    path = f"/local/shards/{next(iter(application.instance.status().shards))}"

    refused = [
        application.get(path, app=locked, headers=headers)
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}x"})
    ]
    sent = application.get(path, app=locked, headers={"Authorization": f"Bearer {TOKEN}"})

    assert {(each.status_code, each.json()["code"]) for each in refused} == {
        (401, "UNAUTHENTICATED")
    }
    assert sent.status_code == 200
