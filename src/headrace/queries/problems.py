"""The closed list of reasons why a query has no answer."""

from __future__ import annotations

from enum import Enum

from headrace.errors import QueryError


class ProblemCode(Enum):
    """A reason, by its HTTP status and its name."""

    UNKNOWN_ROUTE = 404, "UNKNOWN_ROUTE"
    UNKNOWN_STORE = 404, "UNKNOWN_STORE"
    KEY_NOT_FOUND = 404, "KEY_NOT_FOUND"
    WRONG_METHOD = 405, "WRONG_METHOD"
    WRONG_STORE_KIND = 409, "WRONG_STORE_KIND"
    NOT_UP_TO_BOUND = 409, "NOT_UP_TO_BOUND"
    CURSOR_EXPIRED = 410, "CURSOR_EXPIRED"
    SNAPSHOT_GONE = 410, "SNAPSHOT_GONE"
    BODY_TOO_LARGE = 413, "BODY_TOO_LARGE"
    BAD_KEY = 422, "BAD_KEY"
    BAD_RANGE = 422, "BAD_RANGE"
    BAD_REQUEST = 422, "BAD_REQUEST"
    LIMIT_TOO_LARGE = 422, "LIMIT_TOO_LARGE"
    NOT_AN_INPUT = 422, "NOT_AN_INPUT"
    TOO_MANY_QUERIES = 429, "TOO_MANY_QUERIES"
    STORE_NOT_READY = 503, "STORE_NOT_READY"
    OTHER_PROGRAM = 503, "OTHER_PROGRAM"
    LOST_RECORDS = 503, "LOST_RECORDS"
    TIMEOUT = 504, "TIMEOUT"
    UNAUTHENTICATED = 401, "UNAUTHENTICATED"
    FORBIDDEN = 403, "FORBIDDEN"
    ADMIN_DISABLED = 403, "ADMIN_DISABLED"
    INTERNAL = 500, "INTERNAL"

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]


class QueryProblemError(QueryError):
    """A query has no answer, for one of the listed reasons.

    Args:
        code: The reason.
        detail: The cause, the place and the fix.
        retry_after_ms: After which time a retry may succeed; None: a retry does not help.
    """

    def __init__(
        self, code: ProblemCode, detail: str, *, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retry_after_ms = retry_after_ms
