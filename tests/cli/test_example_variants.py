"""``headrace example NAME --variant VARIANT``: the other programs of an example."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from headrace.cli.targets import load_target
from headrace.examples.catalogue import Example, examples, learning_path
from headrace.examples.checking import in_process
from headrace.examples.feeding import Encoding
from headrace.examples.variants import Variant
from tests.cli.conftest import Cli
from tests.unit.spark.fake_query import faked_queries

WITH_VARIANTS = [each for each in examples() if each.variants]


def test_the_list_shows_the_options_of_an_example_and_the_learning_path(cli: Cli) -> None:
    rows = {row["example"]: row["options"] for row in cli("example", "--output", "json").data}

    assert rows["orders"] == "--instances 2; --variant document"
    assert rows["captcha"] == "--variant global-table | wall-clock"
    assert rows["greetings"] == ""
    path = (
        "greetings → words → reprocess → windows → orders → captcha → product-views → stock-trades"
        " → music → connections → exactly-once → instances"
    )
    assert " → ".join(learning_path()) == path
    assert f"Read them in this order: {path}." in cli("example").out


def test_the_list_names_the_variants_that_there_are() -> None:
    folders = {each.folder for each in examples() if (each.folder / "variants.py").exists()}

    assert folders == {each.folder for each in WITH_VARIANTS}
    for each in WITH_VARIANTS:
        assert tuple(each.module("variants").VARIANTS) == each.variants


every_variant = pytest.mark.parametrize(
    ("example", "name"),
    [(each, name) for each in WITH_VARIANTS for name in each.variants],
    ids=lambda each: each.name if isinstance(each, Example) else each,
)


@every_variant
def test_the_input_of_a_variant_fits_its_program(example: Example, name: str) -> None:
    variant: Variant = example.module("variants").VARIANTS[name]
    app = load_target(f"{example.package}.{variant.program}").app
    assert app is not None

    encoding = Encoding(app, variant.TOPICS)
    records = [encoding.raw(record) for record in islice(variant.feed(), 100)]

    assert {record[0] for record in records} <= variant.TOPICS.keys()
    assert app.config.errors_dead_letter_queue_topic_name is not None


@pytest.mark.tier("test")
@every_variant
def test_a_variant_writes_results(example: Example, name: str, tmp_path: Path) -> None:
    variant: Variant = example.module("variants").VARIANTS[name]
    app = load_target(f"{example.package}.{variant.program}").app
    assert app is not None

    with in_process(app, variant.TOPICS, tmp_path) as run:
        run.write(islice(variant.feed(), 100))

        written = {topic for topic in Encoding(app).sinks if run.read(topic)}
        assert written or name == "alert", "the alert sends mails, and writes to no topic"


def test_a_variant_runs_on_a_log_of_its_own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = faked_queries(monkeypatch, is_active=False)

    done = cli("example", "captcha", "--variant", "global-table")

    assert (done.code, len(queries)) == (0, 1)
    assert "headrace plan headrace.examples.captcha.app:global_app" in done.out
    assert "headrace example captcha --variant global-table --trace" in done.out
    assert "headrace example captcha --copy my-captcha" in done.out
    assert Path(".headrace/examples/captcha-global-table/topics.db").exists()


def test_a_variant_that_does_not_exist_is_named(cli: Cli) -> None:
    wrong = cli("example", "captcha", "--variant", "nothing")
    none = cli("example", "greetings", "--variant", "nothing")

    assert (wrong.code, none.code) == (4, 4)
    assert "has no variant 'nothing'. There is global-table, wall-clock." in wrong.err
    assert "It has no variants." in none.err


def test_a_copy_has_its_variants(cli: Cli) -> None:
    assert cli("example", "sms-parts", "--copy", "mine").code == 0

    done = cli("example", "./mine", "--variant", "slide", "--trace")

    assert done.code == 0
    assert "KSTREAM-AGGREGATE" in done.out
