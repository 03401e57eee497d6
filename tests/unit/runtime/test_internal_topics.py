"""The internal topics of an application: their settings, and their deletion in a reset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace import StreamsBuilder
from headrace.clients.reset import execute_reset, plan_reset
from headrace.runtime.exchange.packing import TaskReport
from headrace.runtime.planning.startup import prepare
from tests.application_home import embedded_home
from tests.unit.runtime.planning import Planning, append, create, name

LOOP = "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic"
CHANGELOG = "app-joined-changelog"


def joining(folder: Path, **settings: Any) -> Planning:
    """An application that has a topic it reads back, and a changelog."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str)
    customers = builder.table("customers", key=str, value=str)
    orders.join(
        customers,
        lambda order, customer: order + customer,
        foreign_key=lambda order: order,
        value=str,
        materialized="joined",
    )
    planning = Planning(builder.build(), folder, **settings)
    create(planning.log, orders=2, customers=2)
    return planning


class Noted:
    """A log that notes the settings of the topics it is asked to create."""

    def __init__(self, log: object) -> None:
        self._log = log
        self.settings: dict[str, dict[str, str]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create_topic(
        self, topic: str, *, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.settings[topic] = dict(settings or {})
        create(self._log, **{topic: partitions})  # type: ignore[arg-type]  # as a log


def created(planning: Planning) -> dict[str, dict[str, str]]:
    """Return the settings of the topics that a first start creates."""
    log: Any = Noted(planning.log)
    prepare(planning.plan, planning.config, log, planning.spark_checkpoint, lambda _tasks: 2)
    return log.settings  # type: ignore[no-any-return]  # as `Noted` has it


def test_topics_that_are_read_back_keep_their_records_until_they_are_read(tmp_path: Path) -> None:
    planning = joining(tmp_path)

    planning.layout()

    assert planning.log.describe_topic(LOOP).settings == {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.after.max.ms": "9223372036854775807",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }


def test_the_application_s_topic_settings_win_in_topics_that_are_read_back(tmp_path: Path) -> None:
    planning = joining(tmp_path, topic={"segment.bytes": "9", "min.insync.replicas": "2"})

    planning.layout()

    made = planning.log.describe_topic(LOOP).settings
    assert (made["segment.bytes"], made["min.insync.replicas"]) == ("9", "2")
    assert made["retention.ms"] == "-1"


def test_every_internal_topic_is_created_with_the_replication_factor(tmp_path: Path) -> None:
    made = created(joining(tmp_path, replication_factor=3))

    factors = {topic: settings.get("replication.factor") for topic, settings in made.items()}
    assert factors == dict.fromkeys([LOOP, CHANGELOG, "app-markers", "app-snapshots"], "3")


def test_without_a_replication_factor_the_broker_is_left_to_choose(tmp_path: Path) -> None:
    made = created(joining(tmp_path))

    assert {settings["replication.factor"] for settings in made.values()} == {"-1"}


def test_a_start_after_a_reset_recreates_the_topic_that_is_read_back(tmp_path: Path) -> None:
    planning = joining(tmp_path)
    planner = planning.planner()
    append(planning.log, "orders", 1)
    append(planning.log, LOOP, 2)
    end = planner.next(planner.first())
    tasks = planning.layout().tasks
    planning.end_batch(0, *(TaskReport(task, waiting_from={}) for task in tasks))
    planner.next(end)  # commits what the first batch has processed

    plan = plan_reset(planning.log, embedded_home(tmp_path))
    execute_reset(planning.log, plan)

    assert name(LOOP).topic in plan.topics
    assert {change.topic for change in plan.offsets} == {"orders", "customers"}
    planning.layout()
    assert planning.log.end_offsets([name(LOOP)]) == {name(LOOP): 0}
