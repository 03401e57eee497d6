"""Connects clients to the instances of an application."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import httpx

from headrace.config import StreamsConfig
from headrace.durations import Duration, duration_ms
from headrace.queries.catalog import Catalog, catalog_of
from headrace.queries.client.conversations import Conversations
from headrace.queries.client.steps import Reply, Request, Unreachable
from headrace.queries.client.store_encodings import JsonEncoding
from headrace.runtime.plan import plan_topology
from headrace.topology.topology import Topology

CONNECT_SECONDS = 2.0


class Application(Protocol):
    """A program with its settings, such as `KafkaStreams`."""

    topology: Topology
    config: StreamsConfig


Program: TypeAlias = Application | Topology | Catalog
"""Says the types of keys and values."""


def conversations_with(
    server: str | Sequence[str],
    token: str | None,
    timeout: Duration,
    program: Program | None,
    *,
    decimals: bool,
) -> Conversations:
    """Return the conversations with the instances at some addresses."""
    servers = [server] if isinstance(server, str) else [*server]
    if not servers:
        msg = "A client needs the address of an instance, such as '127.0.0.1:8080'."
        raise ValueError(msg)
    seconds = duration_ms(timeout, what="timeout") / 1000
    plain = JsonEncoding(decimals=decimals)
    return Conversations(servers, token, seconds, _catalog(program), plain)


def _catalog(program: Program | None) -> Catalog | None:
    if program is None or isinstance(program, Catalog):
        return program
    if isinstance(program, Topology):
        return catalog_of(plan_topology(program, StreamsConfig(application_id="queries")))
    return catalog_of(plan_topology(program.topology, program.config))


def http_options(ca: Path | str | None) -> dict[str, Any]:
    """Return the options of an HTTP client: no proxies, and an own certificate authority."""
    verify: Any = True if ca is None else ssl.create_default_context(cafile=str(ca))
    return {"verify": verify, "trust_env": False}


def request_options(request: Request) -> dict[str, Any]:
    """Return a request as httpx builds it."""
    return {
        "method": request.method,
        "url": request.url,
        "params": dict(request.params),
        "headers": dict(request.headers),
        "content": request.body,
        "timeout": httpx.Timeout(request.timeout, connect=min(CONNECT_SECONDS, request.timeout)),
    }


def reply_of(response: httpx.Response) -> Reply:
    """Return the answer that httpx has read."""
    return Reply(response.status_code, head_of(response).headers, response.content)


def head_of(response: httpx.Response) -> Reply:
    """Return an answer whose body is not read."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers)


def unreachable(error: Exception) -> Unreachable:
    """Return what an error of the network means."""
    return Unreachable(str(error) or type(error).__name__)
