"""Behaviour of `peek`, `foreach` and `print`."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headrace import StreamsBuilder
from headrace.testing import DriverFactory


def test_peek_shows_each_record_before_it_is_forwarded(topology_driver: DriverFactory) -> None:
    seen: list[str] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.peek(lambda key, _: seen.append(f"first {key}")).foreach(
        lambda key, _: seen.append(f"second {key}")
    )
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), ("b", 2)])

    assert seen == ["first a", "second a", "first b", "second b"]


def test_peek_passes_on_what_it_was_given(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).peek(lambda *_: None).to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert driver.create_output_topic("out").read_key_value() == ("a", 1)


def test_peek_that_fails_leaves_the_record_out(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).peek(lambda _, value: 1 // value).to("out")
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_key_value_list([("a", 0), ("b", 1)])

    assert driver.create_output_topic("out").read_key_values_to_list() == [("b", 1)]


def test_print_writes_to_standard_output_under_the_name_of_the_node_before(
    topology_driver: DriverFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int, name="orders").print()
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_key_value_list([("a", 1), (None, None)])

    assert capsys.readouterr().out == "[orders]: a, 1\n[orders]: null, null\n"


def test_print_takes_a_label_and_a_mapper(topology_driver: DriverFactory) -> None:
    written = io.StringIO()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.print(file=written, label="seen", mapper=lambda key, value: f"{key}={value}")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)

    assert written.getvalue() == "[seen]: a=1\n"


def test_print_appends_to_a_path_and_closes_the_file(
    topology_driver: DriverFactory, tmp_path: Path
) -> None:
    path = tmp_path / "records.txt"
    path.write_text("before\n")
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).print(file=path, label="in")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1)
    driver.close()

    assert path.read_text() == "before\n[in]: a, 1\n"


def test_print_that_fails_is_decided_about_by_the_handler(topology_driver: DriverFactory) -> None:
    written = io.StringIO()
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.print(file=written, label="in", mapper=lambda _, value: str(1 // value))
    driver = topology_driver(builder.build(), processing_exception_handler="continue")

    driver.create_input_topic("in").pipe_key_value_list([("a", 0), ("b", 1)])

    assert written.getvalue() == "[in]: 1\n"


def test_printed_records_have_no_control_characters(
    topology_driver: DriverFactory,
) -> None:
    written = io.StringIO()
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=str).print(file=written, label="in")

    topology_driver(builder.build()).create_input_topic("in").pipe_input("\x1b[2J", "a\tb\nc")

    assert written.getvalue() == "[in]: \\u001b[2J, a\tb\\nc\n"
