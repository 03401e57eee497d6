"""The routes of dead letters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headrace.errors import BrokerError
from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.redrive import DeadLetters
from headrace.queries.server.replies import plain_answer
from headrace.queries.server.routes.operations import newest_record
from headrace.queries.server.routes.stores import Shared
from headrace.queries.server.served import Served

router = APIRouter(prefix="/v1/dlq", tags=["dead letters"])

MOST_DEAD_LETTERS = 10_000

T = TypeVar("T")


class ReplayBody(BaseModel):
    """The dead letters to replay."""

    model_config = ConfigDict(extra="forbid")
    dry_run: Annotated[
        bool, Field(description="Whether to count dead letters only, and write nothing.")
    ] = True
    limit: Annotated[
        int, Field(ge=1, le=MOST_DEAD_LETTERS, description="How many dead letters to use.")
    ] = 1_000


@router.get("", summary="The newest dead letters")
async def list_dead_letters(
    served: Shared, request: Request, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> Response:
    """Return the newest dead letters, the newest first."""
    if served.application.config.errors_dead_letter_queue_topic_name is None:
        return plain_answer(request, served, [])
    return plain_answer(
        request, served, await _with_dead_letters(served, lambda each: each.newest(limit))
    )


@router.post("/replay", summary="Write dead letters to their topics again")
async def replay(served: Shared, request: Request, body: ReplayBody | None = None) -> Response:
    """Return how many records go to which topic; a dry run by default."""
    if not served.is_admin:
        msg = "This instance only reads. Start it with `--enable-admin`."
        raise QueryProblemError(ProblemCode.ADMIN_DISABLED, msg)
    given = body or ReplayBody()
    done = await _with_dead_letters(
        served, lambda each: each.replay(given.limit, dry_run=given.dry_run)
    )
    facts: dict[str, Any] = {
        "is_dry_run": done.is_dry_run,
        "replayed": dict(sorted(done.replayed.items())),
        "skipped": dict(sorted(done.skipped.items())),
        "has_more": done.has_more,
    }
    return plain_answer(request, served, [facts])


async def _with_dead_letters(served: Served, use: Callable[[DeadLetters], T]) -> T:
    topic = served.application.config.errors_dead_letter_queue_topic_name
    if topic is None:
        msg = "The application has no `errors.dead.letter.queue.topic.name`, so no dead letters."
        raise QueryProblemError(ProblemCode.BAD_REQUEST, msg)
    inputs = {*newest_record(served).position}

    def run() -> T:
        with closing(served.open_broker()) as log:
            return use(DeadLetters(log, served.catalog.application_id, topic, inputs))

    try:
        return await served.broker_work.run(run)
    except BrokerError as error:
        detail = f"The log does not answer: {error}"
        raise QueryProblemError(
            ProblemCode.STORE_NOT_READY, detail, retry_after_ms=1_000
        ) from error
