"""Behaviour of headers: they travel with the record and belong to it alone."""

from __future__ import annotations

from headrace import Headers, Processor, Record, StreamsBuilder
from headrace.testing import DriverFactory


class AddsHeader(Processor[str, int, str, int]):
    """Adds a header to the record it forwards."""

    def process(self, record: Record[str, int]) -> None:
        added = record.headers.adding("seen", b"yes")
        self.context.forward(record.with_headers(added))


def test_a_header_added_on_one_branch_does_not_appear_on_its_sibling(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.process(AddsHeader, key=str, value=int).to("marked")
    stream.to("plain")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1, headers=[("h", b"1")])

    assert driver.create_output_topic("plain").read_record().headers == [("h", b"1")]
    marked = driver.create_output_topic("marked").read_record().headers
    assert marked == [("h", b"1"), ("seen", b"yes")]


def test_headers_pass_through_every_stateless_step_and_a_repartition(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    (
        builder.stream("in", key=str, value=int)
        .map(lambda key, value: (key, value), key=str, value=int)
        .flat_map(lambda key, value: [(key, value)], key=str, value=int)
        .flat_map_values(lambda value: [value], value=int)
        .map_values(lambda value: value, value=int)
        .select_key(lambda key, _: key, key=str)
        .peek(lambda *_: None)
        .repartition()
        .to_table()
        .to_stream()
        .to("out")
    )
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_input("a", 1, headers=[("h", b"1"), ("h", b"2")])

    headers = driver.create_output_topic("out").read_record().headers
    assert headers == Headers([("h", b"1"), ("h", b"2")])
