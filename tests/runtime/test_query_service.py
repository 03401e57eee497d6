"""Services of queries over an application that runs in this process."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest

from headrace import KafkaStreams, StreamsBuilder, StreamsConfig
from headrace.brokers import TopicPartition, open_log
from headrace.errors import ConfigError
from headrace.queries.coordination.http_transport import HttpTransport
from headrace.queries.coordination.local_reads import (
    LocalRead,
    PeerUnreachableError,
    ShardRead,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.members import MemberStatus
from headrace.queries.problems import QueryProblemError
from headrace.queries.reads import ScanKeys
from headrace.queries.service import QueryService, transport_of
from headrace.queries.transfer.messages import frames, header_of
from tests.certificates import make_certificate
from tests.free_address import free_address
from tests.runtime.counting import Application
from tests.runtime.in_process import InProcessQuery
from tests.unit.fake_run import FakeRun, faked
from tests.waiting import await_that

ANY_PORT = "127.0.0.1:0"
TOKEN = "0123456789abcdef-secret"


@pytest.fixture
def services() -> Iterator[list[QueryService]]:
    """Services that the test appends; they are closed at its end."""
    started: list[QueryService] = []
    yield started
    for service in started:
        service.close()


def started(application: Application) -> QueryService:
    service = QueryService(application.topology, application.config, server=ANY_PORT)
    service.start()
    return service


def count_of(url: str, key: str) -> object:
    """Return the count of a key; None: there is no answer."""
    try:
        response = httpx.get(f"{url}/v1/stores/counts/keys/{key}")
    except httpx.HTTPError:
        return None
    return response.json() if response.status_code == httpx.codes.OK else None


def test_threads_take_turns_more_often_where_queries_are_answered(
    application: Application, services: list[QueryService]
) -> None:
    before = sys.getswitchinterval()
    try:
        services.append(started(application))
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)


def test_the_garbage_collector_passes_over_what_is_there_when_queries_are_answered(
    application: Application,
) -> None:
    service = started(application)

    while_it_runs = gc.get_freeze_count()
    service.close()

    assert while_it_runs > 0
    assert gc.get_freeze_count() == 0


def test_two_services_answer_for_all_shards_and_one_of_them_alone(
    application: Application, services: list[QueryService]
) -> None:
    application.run(b"a", b"b", b"c", b"d")
    services += [started(application), started(application)]
    first, second = services
    await_that(
        lambda: (
            all(service.is_ready() for service in services)
            and all(len(service.instance.members()) == 2 for service in services)
        ),
        "both services to be ready",
        found=lambda: [service.instance.members() for service in services],
    )
    assert [count_of(each.url, key) for each in services for key in "abcd"] == [1] * 8

    application.run(b"a")
    for service in services:
        await_that(
            lambda url=service.url: count_of(url, "a") == 2,  # type: ignore[misc]
            "the new count",
        )
    closed = first.url
    first.close()

    assert [count_of(second.url, key) for key in "abcd"] == [2, 1, 1, 1]
    assert count_of(closed, "a") is None
    assert first.failure() is None


def test_instances_with_a_certificate_and_a_token_answer_each_other(
    application: Application, services: list[QueryService], tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    application.config = application.config.with_settings(
        server_tls_certificate=certificate, server_tls_key=key, server_token_file=token
    )
    application.run(b"a", b"b", b"c")
    services.append(started(application))
    [service] = services
    await_that(service.is_ready, "the service to be ready")
    member = service.instance.name
    assert member is not None

    status, rows = asyncio.run(ask(transport_of(application.config), member))
    with transport_of(application.config).shard(member, Shard("0", 0)) as chunks:
        header = header_of(next(frames(chunks)))

    assert status.shards == service.instance.status().shards
    assert rows == [b"a", b"b", b"c"]
    assert header.state.snapshot == status.snapshot
    for stranger, reason in (
        (HttpTransport(TOKEN), "does not answer"),
        (HttpTransport(None, certificate), "server.token.file"),
    ):
        with pytest.raises(PeerUnreachableError, match=reason):
            asyncio.run(ask(stranger, member))


def test_the_token_is_never_logged(
    application: Application,
    services: list[QueryService],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "token"
    path.write_text(TOKEN)
    application.config = application.config.with_settings(server_token_file=path)
    application.run(b"a", b"b", b"c")
    services += [started(application), started(application)]
    await_that(
        lambda: all(each.is_ready() and len(each.instance.members()) == 2 for each in services),
        "both services to be ready",
    )

    statuses = [
        httpx.get(f"{service.url}/v1/{path}", headers={"Authorization": f"{scheme} {token}"})
        for service in services
        for path in ("stores/counts/keys/a", "stores/counts/entries", "stores/none/keys/a", "%")
        for scheme in ("Bearer", "Basic")
        for token in (TOKEN, f"{TOKEN}x")
    ]

    assert {answer.status_code for answer in statuses} >= {200, 401, 404}
    assert all(TOKEN not in answer.text for answer in statuses)
    assert services[0].url.removeprefix("http://") in caplog.text
    assert TOKEN not in caplog.text


async def ask(transport: HttpTransport, member: str) -> tuple[MemberStatus, list[bytes]]:
    """Return what an instance says about itself, and its keys of the first shard."""
    read = LocalRead(reads=(ShardRead("counts", 0, ScanKeys()),))
    try:
        answer = await transport.read(member, read)
        return await transport.status(member), [row.key for row in answer.shards[0].rows]
    finally:
        await transport.close()


def test_a_service_needs_an_address(application: Application) -> None:
    with pytest.raises(ConfigError, match="is not set"):
        QueryService(application.topology, application.config)


def test_other_machines_need_a_token(application: Application) -> None:
    with pytest.raises(ConfigError, match="token"):
        QueryService(application.topology, application.config, server="0.0.0.0:0")


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRun]]:
    with faked(monkeypatch) as made:
        yield made


def test_an_application_answers_until_it_is_closed(
    application: Application, fake_run: type[FakeRun]
) -> None:
    application.run(b"a")
    server = free_address()
    config, url = application.config.with_settings(application_server=server), f"http://{server}"
    streams = KafkaStreams(application.topology, config)

    with pytest.raises(QueryProblemError, match="does not answer queries"):
        _ = streams.instance

    streams.start()
    assert streams.store("counts").get("a") == 1
    assert count_of(url, "a") == 1
    assert streams.instance.name == server
    assert streams.coordinator.newest_local("counts", b"a") is not None
    streams.close()

    assert count_of(url, "a") is None


def has_count(url: str, key: str, count: int) -> bool:
    return count_of(url, key) == count


def written_by(application: Application, url: str | None) -> list[tuple[object, ...]]:
    """Return the changelog of some batches; with a server, one that answers between them."""
    for number in range(4):
        application.run(b"a", b"%d" % number)
        if url is not None:
            await_that(partial(has_count, url, "a", number + 1), f"count {number + 1}")
            assert httpx.get(f"{url}/v1/stores/counts/entries").status_code == 200
            statement = {"sql": "SELECT count(*) FROM counts"}
            assert httpx.post(f"{url}/v1/sql", json=statement).status_code == 200
    found: list[tuple[object, ...]] = []
    for partition in range(2):
        name = TopicPartition("application-counts-changelog", partition)
        end = application.log.end_offsets([name])[name]
        for records in application.log.read(name, 0, end):
            found += [(partition, each.offset, each.key, each.value) for each in records]
    return found


def test_an_application_writes_the_same_whether_it_is_asked_or_not(
    tmp_path: Path, application: Application, services: list[QueryService]
) -> None:
    services.append(started(application))
    with closing(Application(tmp_path / "alone")) as alone:
        written = written_by(alone, None)

    assert written_by(application, services[0].url) == written
    assert len(written) == 16


def test_an_application_runs_though_its_port_is_taken(
    application: Application,
    services: list[QueryService],
    caplog: pytest.LogCaptureFixture,
    fake_run: type[FakeRun],
) -> None:
    services.append(started(application))
    taken = services[0].url.removeprefix("http://")
    streams = KafkaStreams(
        application.topology, application.config.with_settings(application_server=taken)
    )

    streams.start()
    await_that(lambda: "not answered yet" in caplog.text, "a warning")
    assert streams.state().is_running_or_rebalancing()
    assert streams.close()


def test_an_application_without_a_store_answers_for_itself(
    tmp_path: Path, services: list[QueryService]
) -> None:
    builder = StreamsBuilder()
    builder.stream("lines", key=str, value=str).map_values(str.upper, value=str).to("out")
    settings = StreamsConfig(application_id="plain", application_server=free_address())
    with closing(open_log(settings.with_settings(state_dir=tmp_path))) as log:
        log.create_topic("lines")
        log.append([("lines", 0, 0, b"k", b"v", None)])
    query = InProcessQuery(
        builder.build(),
        tmp_path,
        application_id="plain",
        application_server=settings.application_server,
    )
    query.run()
    service = QueryService(builder.build(), query.config)
    services.append(service)
    service.start()
    await_that(service.is_ready, "a server that is ready", found=service.instance.status)

    answers = {
        path: httpx.get(service.url + path)
        for path in ("/health/ready", "/metrics", "/v1/topology", "/v1/errors", "/v1/stores")
    }

    assert {path: each.status_code for path, each in answers.items()} == dict.fromkeys(answers, 200)
    assert answers["/v1/stores"].json()["data"] == []
    assert re.search(r"headrace_records_consumed_total\{[^}]*\} 1\n", answers["/metrics"].text)
    query.log.close()
