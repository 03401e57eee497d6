"""The routes for people who run an application: instances, snapshots, topology, lag, errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from headrace.config.topology_defaults import topology_defaults
from headrace.queries.copy.layout import Shard
from headrace.queries.http_names import JSON_TYPE
from headrace.queries.members import MemberStatus, shard_name
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.bounds import EncodingName
from headrace.queries.server.replies import plain_answer, present_answer
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.served import Served
from headrace.queries.tokens import token_of
from headrace.runtime.snapshots import SnapshotRecord
from headrace.topology.description_data import description_data
from headrace.topology.pictures import graphviz_from, mermaid_from, origins_of, picture_from

router = APIRouter(prefix="/v1", tags=["operations"])


def newest_record(served: Served) -> SnapshotRecord:
    """Return the newest record that the instance has read.

    Raises:
        QueryProblemError: It has read none.
    """
    record = served.instance.newest_record()
    if record is not None:
        return record
    problem = served.instance.problem()
    if problem is not None:
        raise problem
    msg = "The instance has read no snapshot yet. Has the application run?"
    raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=1_000)


@router.get("/metadata", summary="The instances, and the shards that each has")
async def metadata(
    served: Shared,
    request: Request,
    store: Annotated[str | None, Query(description="Instances that have this store.")] = None,
    key: Annotated[str | None, Query(description="Instances that have this key, as text.")] = None,
    encoding: EncodingName = "json",
) -> Response:
    """Return for each shard the instance that answers first, and its standbys."""
    if key is not None and store is None:
        msg = "A key needs a `store`."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
    record = newest_record(served)
    catalog, placement = served.catalog, served.instance.placement()
    shards = sorted(placement)
    if store is not None:
        found = catalog.store(store)
        shards = catalog.shards(found, record)
        if key is not None:
            serialized = served.encoding(store, encoding).key_from_text(key)
            shard = catalog.shard_of_key(found, serialized, record)
            shards = shards if shard is None else [shard]
    members = served.instance.members()
    return plain_answer(
        request,
        served,
        [_placed(served, shard, placement.get(shard, ()), members) for shard in shards],
    )


def _placed(served: Served, shard: Shard, names: Iterable[str], members: Any) -> dict[str, Any]:
    name = shard_name(shard)
    ready = [each for each in names if _is_ready(members.get(each), name)]
    waiting = [each for each in names if each not in ready]
    others = [
        each
        for each, status in sorted(members.items())
        if each not in ready and each not in waiting and _is_ready(status, name)
    ]
    order = [*ready, *others, *waiting]
    return {
        "shard": name,
        "partition": shard.partition,
        "stores": [
            each.name for each in served.catalog.stores.values() if each.group == shard.group
        ],
        "active": _host(order[0]) if order else None,
        "standby": [_host(each) for each in order[1:]],
        "is_ready": bool(ready or others),
    }


def _is_ready(status: MemberStatus | None, shard: str) -> bool:
    return status is not None and shard in status.ready


def _host(name: str) -> dict[str, Any]:
    host, _, port = name.rpartition(":")
    return {"host": host, "port": int(port) if port.isdecimal() else 0}


@router.get("/snapshots", summary="The snapshots that this instance keeps")
async def snapshots(served: Shared, request: Request) -> Response:
    """Return the snapshots, the newest first."""
    kept = sorted(served.instance.snapshots, key=lambda each: -each.record.snapshot)
    return plain_answer(
        request,
        served,
        [
            {
                "snapshot": str(token_of(each.record)),
                "batch": each.record.batch,
                "at": each.record.at,
                "age_ms": served.age_ms(each.record),
                "records": each.record.stats.get("processed"),
                "seconds": each.record.stats.get("seconds"),
                "shards": [shard_name(shard) for shard in sorted(each.shards)],
                "position": each.record.position,
            }
            for each in kept
        ],
    )


@router.get("/topology", summary="The topology of the program")
async def topology(
    served: Shared,
    request: Request,
    format_: Annotated[Literal["json", "text", "mermaid", "dot"], Query(alias="format")] = "json",
) -> Response:
    """Return the topology as data, as Kafka's text, or as a picture."""
    application = served.application
    lowered = application.topology.lowered(topology_defaults(application.config))
    origins = origins_of(lowered.graph)
    content_type = JSON_TYPE if format_ == "json" else "text/plain"
    match format_:
        case "json":
            data = msgspec.json.encode(description_data(lowered.description, origins))
        case "text":
            data = str(lowered.description).encode()
        case _:
            draw = mermaid_from if format_ == "mermaid" else graphviz_from
            data = draw(picture_from(lowered.description, origins)).encode()
    return present_answer(request, served, data, _record_or_none(served), content_type)


def _record_or_none(served: Served) -> SnapshotRecord | None:
    """Return the newest record; None before there is an instance: a program needs none."""
    try:
        return served.instance.newest_record()
    except QueryProblemError:
        return None


@router.get("/lag", summary="How far the application and the copies are behind")
async def lag(served: Shared, request: Request) -> Response:
    """Return the lag of the application in its inputs, and of this instance's copies."""
    record = newest_record(served)
    lags = record.stats.get("lag", {})
    inputs = [
        {
            "kind": "input",
            "topic": topic,
            "partition": partition,
            "position": offset,
            "lag": _item(lags.get(topic), partition),
        }
        for topic, offsets in record.position.items()
        for partition, offset in enumerate(offsets)
    ]
    names = {each.changelog: each.name for each in served.catalog.stores.values()}
    stores = [
        {
            "kind": "store",
            "store": names.get(name.topic),
            "topic": name.topic,
            "partition": name.partition,
            "position": shown,
            "lag": max(0, newest - shown),
        }
        for name, (shown, newest) in sorted(served.instance.lags().items())
    ]
    return plain_answer(request, served, [*inputs, *stores])


def _item(items: Any, index: int) -> int | None:
    if isinstance(items, list) and index < len(items) and isinstance(items[index], int):
        return int(items[index])
    return None


@router.get("/errors", summary="Records that failed, by step and reason")
async def errors(served: Shared, request: Request) -> Response:
    """Return the kinds of errors of the application's run, the most frequent first."""
    found = newest_record(served).stats.get("errors", [])
    return plain_answer(request, served, found if isinstance(found, list) else [])
