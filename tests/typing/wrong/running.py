"""A setting that does not exist, or has another type, is refused."""

from __future__ import annotations

from headrace import KafkaStreams, StreamsBuilder
from headrace.testing import TopologyTestDriver

topology = StreamsBuilder().build()

KafkaStreams(topology, application_id="typed", comit_interval="1s")  # E: call-arg; pyright: reportCallIssue
KafkaStreams(topology, application_id=7)  # E: arg-type; pyright: reportArgumentType
KafkaStreams("topology", application_id="typed")  # E: arg-type; pyright: reportArgumentType

driver = TopologyTestDriver(topology)
words = driver.create_input_topic("words", key=str, value=str)
words.pipe_input("key", 1)  # E: arg-type; pyright: reportArgumentType
counts = driver.create_output_topic("counts", key=str, value=int)
text: str = counts.read_value()  # E: assignment; pyright: reportAssignmentType
