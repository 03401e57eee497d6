"""`headrace plan`: how a program will run, for people and for programs."""

from __future__ import annotations

import json
import re
import sys
from textwrap import dedent
from typing import Any

import pytest

from headrace import StreamsBuilder, StreamsConfig
from headrace.cli.plan_output import data_from_plan, text_from_plan
from headrace.runtime.plan import plan_topology
from tests.cli.conftest import Cli


def text_of(builder: StreamsBuilder, **settings: Any) -> str:
    config = StreamsConfig(application_id="app", **settings)
    text = text_from_plan(plan_topology(builder.build(), config), config)
    return re.sub(r" \(test_plans\.py:\d+\)", "", text)


def data_of(builder: StreamsBuilder, **settings: Any) -> Any:
    config = StreamsConfig(application_id="app", **settings)
    return json.loads(json.dumps(data_from_plan(plan_topology(builder.build(), config), config)))


def counting() -> StreamsBuilder:
    """A program with a global store, a repartition, a pattern and a topic chosen per record."""
    builder = StreamsBuilder()
    builder.global_table("rates", key=str, value=int, materialized="rates")
    stream = builder.stream("in", key=str, value=int)
    stream.to(lambda _k, _v, _context: "chosen")
    moved = stream.select_key(lambda _k, v: str(v), key=str).repartition(name="by", partitions=3)
    moved.group_by_key().count(materialized="counts").to_stream().to("out")
    builder.stream(re.compile("log-.*"), key=str, value=int).to("logs")
    return builder


def joining() -> StreamsBuilder:
    """A program with a repartition that leads back to the subtopology it comes from."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=str, value=str)
    customers = builder.table("customers", key=str, value=str)
    joined = orders.join(customers, lambda o, c: o + c, foreign_key=lambda o: o, value=str)
    joined.to_stream().to("out")
    return builder


def test_a_plan_prints_what_runs_where() -> None:
    assert text_of(counting()) == dedent(
        """\
        Application app: one streaming query
          global store rates  from rates, a copy per Spark partition

        Stage 0  inside the Python stream source
          subtopology 1  a task per partition of in
            read   in
            run    KSTREAM-KEY-SELECT-0000000004, by-repartition-filter
            write  a topic chosen per record
            repartition to app-by-repartition
          pack   topics that match 'log-.*'  for subtopology 3
          exchange  packed records, to stage 1

        Stage 1  engine tasks in transformWithState
          subtopology 2  3 tasks
            repartition app-by-repartition
            run    KSTREAM-AGGREGATE-0000000008, KTABLE-TOSTREAM-0000000009
            store  counts (timestamped key value), changelog app-counts-changelog
            write  out
          subtopology 3  a task per partition of topics that match 'log-.*'
            read   topics that match 'log-.*'
            write  logs

        Write  a Python stream sink: one transaction per Spark partition and batch"""
    )


def test_a_plan_promises_no_transactions_where_there_are_none() -> None:
    text = text_of(counting(), processing_guarantee="at_least_once")

    assert "transaction per" not in text
    assert text.splitlines()[-1] == (
        "Write  a Python stream sink: no transactions; a batch that is repeated is written again"
    )


def test_a_plan_marks_stores_with_a_changelog() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=str, value=int).group_by_key()
    grouped.count(materialized="counts")
    grouped.count()

    stores = [line.strip() for line in text_of(builder).splitlines() if "store " in line]

    assert stores == [
        "store  counts (timestamped key value), changelog app-counts-changelog",
        "store  KSTREAM-AGGREGATE-STATE-STORE-0000000002 (timestamped key value)",
    ]


def test_a_single_task_is_one_task() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int).repartition(name="by", partitions=1)
    stream.to("out")

    assert "subtopology 1  1 task\n" in text_of(builder)


def test_a_plan_marks_topics_that_are_read_in_a_later_batch() -> None:
    assert ", written by this query, in a later batch" in text_of(joining())


def test_a_plan_for_programs_has_what_the_text_has() -> None:
    data = data_of(counting())

    origins = [
        step.pop("origin")
        for stage in data["stages"]
        for subtopology in stage["subtopologies"]
        for step in subtopology["steps"]
    ]
    assert [bool(re.fullmatch(r"test_plans\.py:\d+", each or "")) for each in origins] == [
        True,
        False,  # a step that the program does not name
        True,
        True,
    ]
    assert data == {
        "application_id": "app",
        "processing_guarantee": "exactly_once_v2",
        "global_stores": [{"name": "rates", "topic": "rates", "stages": [1]}],
        "stages": [
            {
                "stage": 0,
                "runs": "inside the Python stream source",
                "subtopologies": [
                    {
                        "id": 1,
                        "tasks": None,
                        "sources": [{"kind": "topic", "topics": ["in"], "pattern": None}],
                        "steps": [
                            {"name": "KSTREAM-KEY-SELECT-0000000004"},
                            {"name": "by-repartition-filter"},
                        ],
                        "stores": [],
                        "sinks": [
                            {"kind": "topic", "topic": None},
                            {"kind": "repartition", "topic": "app-by-repartition"},
                        ],
                    }
                ],
            },
            {
                "stage": 1,
                "runs": "engine tasks in transformWithState",
                "subtopologies": [
                    {
                        "id": 2,
                        "tasks": 3,
                        "sources": [
                            {
                                "kind": "repartition",
                                "topics": ["app-by-repartition"],
                                "pattern": None,
                            }
                        ],
                        "steps": [
                            {"name": "KSTREAM-AGGREGATE-0000000008"},
                            {"name": "KTABLE-TOSTREAM-0000000009"},
                        ],
                        "stores": [
                            {
                                "name": "counts",
                                "kind": "timestamped key value",
                                "changelog": "app-counts-changelog",
                            }
                        ],
                        "sinks": [{"kind": "topic", "topic": "out"}],
                    },
                    {
                        "id": 3,
                        "tasks": None,
                        "sources": [{"kind": "topic", "topics": [], "pattern": "log-.*"}],
                        "steps": [],
                        "stores": [],
                        "sinks": [{"kind": "topic", "topic": "logs"}],
                    },
                ],
            },
        ],
        "exchanges": [{"from_stage": 0, "to_stage": 1}],
        "repartitions": [{"name": "app-by-repartition", "partitions": 3, "written_by": [1]}],
        "write": {
            "runs": "a Python stream sink",
            "how": "one transaction per Spark partition and batch",
        },
    }


def test_a_plan_for_programs_separates_loops_from_topics_and_has_the_guarantee() -> None:
    data = data_of(joining(), processing_guarantee="at_least_once")

    subtopologies = [
        subtopology for stage in data["stages"] for subtopology in stage["subtopologies"]
    ]
    read = {source["kind"] for subtopology in subtopologies for source in subtopology["sources"]}
    written = {sink["kind"] for subtopology in subtopologies for sink in subtopology["sinks"]}
    assert read == written == {"topic", "repartition", "loop"}
    assert data["processing_guarantee"] == "at_least_once"
    assert "transaction per" not in data["write"]["how"]


def test_the_plan_of_a_program_is_printed(cli: Cli, program: str) -> None:
    done = cli("plan", program)

    assert done.code == 0
    assert "word-count" in done.out
    assert "Stage 1" in done.out


def test_the_plan_of_a_program_is_printed_for_programs_too(cli: Cli, program: str) -> None:
    done = cli("plan", program, "--output", "json", "-s", "processing.guarantee=at_least_once")

    assert done.code == 0
    assert done.data["application_id"] == "word-count"
    assert done.data["processing_guarantee"] == "at_least_once"
    assert [stage["stage"] for stage in done.data["stages"]] == [0, 1]


def test_without_the_runtime_the_plan_names_the_extra_to_install(
    cli: Cli, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.runtime.plan", None)

    done = cli("plan", program)

    assert done.code == 1
    assert "pip install 'headrace[spark]'" in done.err
