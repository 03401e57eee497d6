"""Probes, and figures for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from headrace.queries.problems import ProblemCode, QueryProblemError
from headrace.queries.server.figures import samples_of
from headrace.queries.server.metrics import metrics_text
from headrace.queries.server.routes.stores import Shared

router = APIRouter(tags=["health"])


@router.get("/health/live", summary="Whether the process answers")
async def live() -> Response:
    """Return 200."""
    return PlainTextResponse("live\n")


@router.get("/health/ready", summary="Whether the copies of this instance are ready")
async def ready(served: Shared) -> Response:
    """Return 200 if they are, else 503."""
    problem = served.instance.problem()
    if problem is not None:
        raise problem
    if not served.instance.is_ready():
        msg = "Not all copies of this instance are ready."
        raise QueryProblemError(ProblemCode.STORE_NOT_READY, msg, retry_after_ms=1_000)
    return PlainTextResponse("ready\n")


@router.get("/metrics", summary="Figures for Prometheus")
async def metrics(served: Shared) -> Response:
    """Return the figures in Prometheus' text format."""
    labels = (("app_id", served.catalog.application_id), ("topology", served.catalog.layout.digest))
    text = metrics_text(samples_of(served), labels)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
