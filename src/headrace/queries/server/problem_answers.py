"""Problems as HTTP answers: ``application/problem+json`` of RFC 9457."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from headrace.queries.http_names import PROBLEM_TYPE, REQUEST_ID_HEADER
from headrace.queries.problems import ProblemCode, QueryProblemError

TITLES: Mapping[ProblemCode, str] = {
    ProblemCode.UNKNOWN_ROUTE: "There is no such route",
    ProblemCode.UNKNOWN_STORE: "There is no such store",
    ProblemCode.KEY_NOT_FOUND: "The store has no such key",
    ProblemCode.WRONG_METHOD: "The route does not take this method",
    ProblemCode.WRONG_STORE_KIND: "Stores of this kind do not answer this read",
    ProblemCode.NOT_UP_TO_BOUND: "The snapshot that is asked for is not there yet",
    ProblemCode.CURSOR_EXPIRED: "The snapshot of the cursor is no longer kept",
    ProblemCode.SNAPSHOT_GONE: "The snapshot is no longer kept",
    ProblemCode.BODY_TOO_LARGE: "The body is too large",
    ProblemCode.BAD_KEY: "The key does not fit the store",
    ProblemCode.BAD_RANGE: "The range cannot be read",
    ProblemCode.BAD_REQUEST: "The request cannot be read",
    ProblemCode.LIMIT_TOO_LARGE: "A limit is exceeded",
    ProblemCode.NOT_AN_INPUT: "The topic is no input of the application",
    ProblemCode.TOO_MANY_QUERIES: "Too many queries are under way",
    ProblemCode.STORE_NOT_READY: "No instance has a ready copy",
    ProblemCode.OTHER_PROGRAM: "The instance runs another program than the application",
    ProblemCode.LOST_RECORDS: "A changelog has lost records",
    ProblemCode.TIMEOUT: "The query took too long",
    ProblemCode.UNAUTHENTICATED: "The token is missing or wrong",
    ProblemCode.FORBIDDEN: "The request is not allowed",
    ProblemCode.ADMIN_DISABLED: "This instance only reads",
    ProblemCode.INTERNAL: "The instance has failed",
}
"""The meaning of each code, in words."""

KAFKA_REASONS: Mapping[ProblemCode, str] = {
    ProblemCode.UNKNOWN_STORE: "DOES_NOT_EXIST",
    ProblemCode.WRONG_STORE_KIND: "UNKNOWN_QUERY_TYPE",
    ProblemCode.NOT_UP_TO_BOUND: "NOT_UP_TO_BOUND",
    ProblemCode.STORE_NOT_READY: "NOT_PRESENT",
    ProblemCode.INTERNAL: "STORE_EXCEPTION",
}
"""The name that Kafka's interactive queries have for a failure."""

_encode = msgspec.json.Encoder().encode


def problem_answer(
    problem: QueryProblemError,
    path: str,
    request_id: str,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer to a request that has a problem."""
    code = problem.code
    body: dict[str, Any] = {
        "type": f"/docs#{code.name}",
        "title": TITLES[code],
        "status": code.status,
        "detail": problem.detail,
        "instance": path,
        "code": code.name,
        "request_id": request_id,
    }
    own = {**(headers or {}), REQUEST_ID_HEADER: request_id, "Cache-Control": "no-store"}
    if problem.retry_after_ms is not None:
        body["retry_after_ms"] = problem.retry_after_ms
        own["Retry-After"] = str(max(1, -(-problem.retry_after_ms // 1000)))
    if code in KAFKA_REASONS:
        body["kafka_reason"] = KAFKA_REASONS[code]
    if code is ProblemCode.UNAUTHENTICATED:
        own["WWW-Authenticate"] = "Bearer"
    return Response(_encode(body), code.status, own, PROBLEM_TYPE)
