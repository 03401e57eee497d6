"""Completes the OpenAPI description: problems, headers and content types of every route."""

from __future__ import annotations

from typing import Any

from headrace.queries.http_names import (
    AGE_HEADER,
    ARROW_TYPE,
    EVENTS_TYPE,
    JSON_TYPE,
    NDJSON_TYPE,
    POSITION_HEADER,
    PROBLEM_TYPE,
    REQUEST_ID_HEADER,
    SNAPSHOT_HEADER,
)
from headrace.queries.problems import ProblemCode
from headrace.queries.server.problem_answers import KAFKA_REASONS, TITLES
from headrace.queries.server.replies import BYTES_TYPE

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "enum": [code.name for code in ProblemCode]},
        "retry_after_ms": {"type": "integer"},
        "kafka_reason": {"type": "string", "enum": sorted({*KAFKA_REASONS.values()})},
        "request_id": {"type": "string"},
    },
}
_LIST = {
    "type": "object",
    "required": ["data", "next", "snapshot"],
    "properties": {
        "data": {"type": "array"},
        "next": {"type": ["string", "null"], "description": "The cursor of the next page."},
        "snapshot": {
            "type": ["string", "null"],
            "description": "The snapshot of the answer.",
        },
    },
}
_HEADERS = {
    SNAPSHOT_HEADER: "The token of the snapshot.",
    POSITION_HEADER: "For each input the next offset that is not reflected, as JSON.",
    AGE_HEADER: "For how many milliseconds the answer may be out of date.",
    "ETag": "The answer, for `If-None-Match`.",
}
_STREAMS = ("/entries", "/windows", "/sessions", "/versions")


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the description that FastAPI makes, with all answers of our own routes."""
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= {"Problem": _PROBLEM, "List": _LIST}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}, {}]
    for path, methods in schema.get("paths", {}).items():
        for method, operation in methods.items():
            if _is_ours(path):
                _add_answers(path, method, operation)
    return schema


def _is_ours(path: str) -> bool:
    return path.startswith(("/v1/", "/health/")) or path == "/metrics"


def _add_answers(path: str, method: str, operation: dict[str, Any]) -> None:
    named = {**(_HEADERS if _is_read(path) else {}), REQUEST_ID_HEADER: "The id of the request."}
    headers = {
        name: {"description": text, "schema": {"type": "string"}} for name, text in named.items()
    }
    found = {"description": "The answer.", "headers": headers, "content": _content(path)}
    operation["responses"] = {
        "200": found,
        **(
            {"304": {"description": "The client has this answer already."}}
            if _is_read(path) and method == "get"
            else {}
        ),
        **_problems(),
    }


def _is_read(path: str) -> bool:
    """Return whether the answer reflects one snapshot. That of a watch has many."""
    return path.startswith("/v1/") and not path.endswith("/changes")


def _content(path: str) -> dict[str, Any]:
    if path.startswith("/health/") or path == "/metrics":
        return {"text/plain": {"schema": {"type": "string"}}}
    if path.endswith("/changes"):
        return {EVENTS_TYPE: {"schema": {"type": "string"}}}
    if "/keys/" in path or path.endswith("/get"):
        return {JSON_TYPE: {"schema": {}}, BYTES_TYPE: {"schema": {"type": "string"}}}
    if path == "/v1/topology":
        return {JSON_TYPE: {"schema": {}}, "text/plain": {"schema": {"type": "string"}}}
    content: dict[str, Any] = {JSON_TYPE: {"schema": {"$ref": "#/components/schemas/List"}}}
    if any(stream in path for stream in _STREAMS):
        content |= {NDJSON_TYPE: {}, ARROW_TYPE: {}}
    return content


def _problems() -> dict[str, Any]:
    """Return the problems by their status; any route may have any of them."""
    codes: dict[int, list[ProblemCode]] = {}
    for code in ProblemCode:
        codes.setdefault(code.status, []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"{code.name}: {TITLES[code]}" for code in same),
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, same in sorted(codes.items())
    }
