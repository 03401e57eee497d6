"""The example orders inside a web application: its lifespan starts and stops the application."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headrace import KafkaStreams
from headrace.app import State
from headrace.examples.checking import in_process
from headrace.examples.orders.app import app
from headrace.examples.orders.feed import TOPICS, feed
from headrace.examples.orders.web import web_of
from tests.free_address import free_address
from tests.unit.fake_run import FakeRun, faked


@pytest.fixture
def fake_run(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeRun]]:
    with faked(monkeypatch) as made:
        yield made


def test_the_application_runs_as_long_as_the_web_application(
    tmp_path: Path, fake_run: type[FakeRun]
) -> None:
    with in_process(app, TOPICS, tmp_path) as run:
        run.write(islice(feed(), 5))
        config = run.app.config.with_settings(application_server=free_address())
        streams = KafkaStreams(app.topology, config)
        here: Any = {"base_url": "http://127.0.0.1", "client": ("127.0.0.1", 50000)}
        with TestClient(web_of(streams), **here) as web:
            streams.store("general_orders_count")  # waits until the stores are ready
            found = web.get("/v1/orders/count/general_orders?location_id=store_1234")

            assert found.text == '{"locationId":"store_1234","orderCount":1}'
            assert streams.state().is_running_or_rebalancing()
        assert streams.state() is State.NOT_RUNNING
