"""One question to one instance, and the answer or the refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import msgspec

from chaos.queries.judging import Judge
from headrace.queries.http_names import POSITION_HEADER, SNAPSHOT_HEADER
from headrace.queries.tokens import Token, parse_token

_SECONDS = 40.0


class Reply(NamedTuple):
    """An answer that names its snapshot."""

    status: int
    token: Token
    position: dict[str, list[int]]
    body: bytes

    @property
    def json(self) -> Any:
        """The body."""
        return msgspec.json.decode(self.body)


class Asker:
    """Asks instances over HTTP. Only refusals that the protocol names are accepted (Q6).

    Args:
        judge: Counts refusals.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._http = httpx.Client(timeout=_SECONDS, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(
        self,
        instance: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        allowed: frozenset[int] = frozenset(),
    ) -> Reply | None:
        """Return an answer, or a 404 that names its snapshot; None: a refusal, or no instance.

        Args:
            instance: ``host:port``.
            path: The path under ``/v1``.
            params: The parameters.
            body: The body of a POST.
            allowed: Statuses of refusals that are right for this question, besides 503.
        """
        url = f"http://{instance}/v1/{path}"
        try:
            if body is None:
                answer = self._http.get(url, params=params)
            else:
                content = msgspec.json.encode(body)
                headers = {"Content-Type": "application/json"}
                answer = self._http.post(url, params=params, content=content, headers=headers)
        except httpx.TransportError:
            self._judge.counts["no connection"] += 1
            return None
        self._judge.note_life(instance)
        status = answer.status_code
        if status == 503 or status in allowed:
            self._judge.counts[f"refused {status}"] += 1
            return None
        token = answer.headers.get(SNAPSHOT_HEADER)
        position = answer.headers.get(POSITION_HEADER)
        if status not in (200, 404) or token is None or position is None:
            self._judge.report("Q6", f"{path} {params} answered {status} {answer.text[:300]}")
            return None
        return Reply(status, parse_token(token), msgspec.json.decode(position), answer.content)
