"""The Spark that an application runs on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from headrace import StreamsConfig
from headrace.spark.masters import is_on_this_machine, is_one_process, master_of, with_master


def config_of(master: str | None = None, threads: int | None = None) -> StreamsConfig:
    spark = {} if master is None else {"spark.master": master}
    return StreamsConfig(application_id="app", spark=spark, num_stream_threads=threads)


@pytest.mark.parametrize(
    ("given", "master"),
    [
        (None, "local[*,4]"),
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_try_a_task_again(given: str | None, master: str) -> None:
    assert master_of(config_of(given)) == master


def test_stream_threads_are_the_cores_unless_a_master_is_given() -> None:
    assert master_of(config_of(threads=2)) == "local[2,4]"
    assert master_of(config_of("local[8]", threads=2)) == "local[8,4]"


@pytest.mark.parametrize(
    ("master", "here", "in_one"),
    [
        (None, True, True),
        ("local", True, True),
        ("local[2]", True, True),
        ("local-cluster[1,1,1024]", True, False),
        ("yarn", False, False),
    ],
)
def test_a_master_says_where_workers_are(master: str | None, here: bool, in_one: bool) -> None:
    config = config_of(master)

    assert (is_on_this_machine(config), is_one_process(config)) == (here, in_one)


def test_a_spark_that_is_there_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(master="yarn"))

    config = with_master(config_of("local[2]"))

    assert master_of(config) == "yarn"
    assert not is_one_process(config)


def test_without_a_spark_the_config_says_which_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    assert with_master(config_of(threads=3)).spark["spark.master"] == "local[3,4]"
