"""Asks other instances over HTTP, with MessagePack bodies on connections that stay open."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from headrace.errors import ConfigError
from headrace.queries.coordination.asking import ANSWER_SECONDS
from headrace.queries.coordination.local_reads import (
    ChangesAnswer,
    LocalAnswer,
    LocalChanges,
    LocalRead,
    MessagePack,
    PeerUnreachableError,
)
from headrace.queries.coordination.local_routes import (
    CHANGES_PATH,
    MESSAGEPACK_TYPE,
    READ_PATH,
    STATUS_PATH,
    shard_path,
)
from headrace.queries.copy.layout import Shard
from headrace.queries.members import MemberStatus

CONNECT_SECONDS = 0.2
"""After this time without a connection the next instance is asked."""
SHARD_SECONDS = 5.0
"""After this time without a byte of a shard its transfer has failed."""
KEPT_SECONDS = 4.0
"""How long an idle connection stays open: less than the server keeps it."""
MOST_CONNECTIONS = 500

_MEMBER = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9.-]{1,253}):[0-9]{1,5}")
_decode_status = msgspec.json.Decoder(MemberStatus).decode

_FAILURES = (httpx.HTTPError, AttributeError)
"""The second one is anyio's, for a connection that the peer has reset while it was opened."""

T = TypeVar("T")


class HttpTransport:
    """A `PeerTransport` over HTTP/1.1. Reads and changes belong to one event loop.

    Args:
        token: The token that instances send each other, or None.
        certificate: The certificate of the instances, for TLS; None: they speak plain HTTP. It is
            trusted besides the authorities of the system.

    Raises:
        ConfigError: The certificate cannot be read.
    """

    def __init__(self, token: str | None = None, certificate: Path | None = None) -> None:
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._scheme = "http" if certificate is None else "https"
        # One for all connections; without TLS it is empty, because to fill it takes long.
        self._verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if certificate is not None:
            self._verify = ssl.create_default_context()
            try:
                self._verify.load_verify_locations(certificate)
            except (OSError, ssl.SSLError) as error:
                msg = f"`server.tls.certificate` cannot be used: {error}."
                raise ConfigError([msg]) from None
        self._client: httpx.AsyncClient | None = None

    async def read(self, member: str, request: LocalRead, /) -> LocalAnswer:
        """Return what an instance has of its shards."""
        return await self._post(
            member, READ_PATH, request, request.wait_ms, MessagePack.decode_answer
        )

    async def changes(self, member: str, request: LocalChanges, /) -> ChangesAnswer:
        """Return what the next snapshot of an instance has changed."""
        return await self._post(
            member, CHANGES_PATH, request, request.wait_ms, MessagePack.decode_changes_answer
        )

    async def status(self, member: str, /) -> MemberStatus:
        """Return what an instance says about its copy.

        Any event loop may ask: the connection is not kept.
        """
        async with self._open() as client:
            try:
                response = await client.get(self._url(member, STATUS_PATH), headers=self._headers)
            except _FAILURES as error:
                raise _unreachable(member, error) from error
        return _decoded(member, response, _decode_status)

    @contextmanager
    def shard(self, member: str, shard: Shard, /) -> Iterator[Iterator[bytes]]:
        """Return the bytes of a shard as they arrive, in any thread."""
        url = self._url(member, shard_path(*shard))
        timeout = httpx.Timeout(SHARD_SECONDS, connect=CONNECT_SECONDS)
        try:
            with (
                httpx.Client(verify=self._verify, trust_env=False, timeout=timeout) as client,
                client.stream("GET", url, headers=self._headers) as response,
            ):
                _check_status(member, response)
                yield response.iter_raw()
        except _FAILURES as error:
            raise _unreachable(member, error) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(
        self,
        member: str,
        path: str,
        request: LocalRead | LocalChanges,
        wait_ms: int,
        decode: Callable[[bytes], T],
    ) -> T:
        if self._client is None:
            self._client = self._open()
        url = self._url(member, path)
        timeout = httpx.Timeout(ANSWER_SECONDS + wait_ms / 1_000, connect=CONNECT_SECONDS)
        headers = {**self._headers, "Content-Type": MESSAGEPACK_TYPE}
        body = MessagePack.encode(request)
        try:
            try:
                response = await self._client.post(
                    url, content=body, headers=headers, timeout=timeout
                )
            except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
                # The peer has closed an idle connection just now; it may well answer on a new one.
                response = await self._client.post(
                    url, content=body, headers=headers, timeout=timeout
                )
        except _FAILURES as error:
            raise _unreachable(member, error) from error
        return _decoded(member, response, decode)

    def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            verify=self._verify,
            # Instances reach each other directly, whatever proxies the environment names.
            trust_env=False,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=MOST_CONNECTIONS, keepalive_expiry=KEPT_SECONDS),
        )

    def _url(self, member: str, path: str) -> str:
        # The name of a member comes from its group: it must not lead to another path.
        if not _MEMBER.fullmatch(member):
            msg = f"{member!r} is no address of an instance. Set `application.server` to host:port."
            raise PeerUnreachableError(msg)
        return f"{self._scheme}://{member}{path}"


def _check_status(member: str, response: httpx.Response) -> None:
    if response.status_code != httpx.codes.OK:
        msg = f"Instance {member} answered with status {response.status_code}."
        if response.status_code == httpx.codes.UNAUTHORIZED:
            msg += " Give all instances the same `server.token.file`."
        raise PeerUnreachableError(msg)


def _decoded(member: str, response: httpx.Response, decode: Callable[[bytes], T]) -> T:
    _check_status(member, response)
    try:
        return decode(response.content)
    except msgspec.MsgspecError as error:
        msg = f"Instance {member} gave an answer of another version of Headrace: {error}."
        raise PeerUnreachableError(msg) from error


def _unreachable(member: str, error: Exception) -> PeerUnreachableError:
    reason = str(error) or type(error).__name__
    return PeerUnreachableError(f"Instance {member} does not answer: {reason}.")
