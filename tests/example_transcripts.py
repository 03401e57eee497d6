"""Writes what the examples print on each log: ``python -m tests.example_transcripts [NAME…]``.

A transcript in ``docs/transcripts`` has the lines that are the same in every run. Times, rates and
ports are left out or replaced by ``…``. A nightly test runs all examples again and compares.
"""

from __future__ import annotations

import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner

from headrace import KafkaStreams, StreamsConfig
from headrace.brokers import open_log
from headrace.brokers.log import TopicLog, TopicPartition
from headrace.cli.commands import app as commands
from headrace.examples.catalogue import Example, examples
from headrace.examples.checking import in_process
from headrace.examples.feeding import Encoding
from headrace.examples.running import config_for
from tests.cli.running_example import RunningExample
from tests.kafka_broker import start_broker
from tests.waiting import await_that

FOLDER = Path(__file__).parents[1] / "docs" / "transcripts"
LOGS = ("embedded", "kafka")

_ENVIRONMENT = {
    "HEADRACE_LOG_SUMMARY_INTERVAL": "1s",
    # A cache lets only the last result of a batch pass, and batches differ from run to run.
    "HEADRACE_STATESTORE_CACHE_MAX_BYTES": "0",
}
_FEW = 2
"""How many topics are shown, with how many records each."""
_FEWER = {"captcha": 1, "delivery-reports": 1}
"""With how many records the topics of other examples are shown: the order of later ones varies."""
_RECORDS = 300
"""With how much of its feed a topic must have records to be shown."""

_STATES = r"Application '.+' went from \w+ to \w+\."
_KEPT = {
    "reprocess": r"Batch and|v\d:|Reset of|  offset",
    "connections": r"Each connection|node-2 is killed",
    "exactly-once": r"The embedded|at_least_once|exactly_once_v2|\d+ records take",
    "instances": r"all_metadata|metadata_for|query_metadata|127\.|\S+ is killed|The dashboard",
    "clients": r"The buffer|One consumer|From offset 0|logs-\d: offset",
    "log-appender": "",
}
"""The lines of the programs that run by themselves that are the same in every run."""
_MASKED = [
    (r"127\.0\.0\.1:\d+", "127.0.0.1:…"),
    (r"(is on one.* node(?: again)?:) \{.*", r"\1 {…}"),
    (r"\d+\.\d ms", "… ms"),
    (r"partition \d, active(.*), standbys .*", r"partition …, active\1, standbys …"),
    (r"(events-)\d(?: events-\d)*", r"\1…"),
    (r": \d+ events$", ": … events"),
    (r"(From offset 0 again: \{1:) \d+", r"\1 …"),
]
_UNTIL_STOPPED = {"instances": r"The dashboard is at"}
"""Programs that end by Ctrl-C, and what they say before."""


class Run(NamedTuple):
    """The result of an example on a log."""

    said: str
    """All that it has printed."""
    code: int
    transcript: str


def path_of(example: Example, log: str) -> Path:
    """Return the file of a transcript."""
    return FOLDER / f"{example.name}-{log}.txt"


def run(example: Example, servers: str | None, folder: Path) -> Run:
    """Run an example in an empty folder until it has written something, and stop it.

    Args:
        example: The example.
        servers: The address of a Kafka broker without topics; None: the embedded log.
        folder: Where it runs.
    """
    flags = ["--bootstrap-servers", servers] if servers else []
    shown = " --bootstrap-servers localhost:9092" if servers else ""
    words = [example.name, *flags]
    has_main = (example.folder / "main.py").exists()
    environment = {} if has_main else _ENVIRONMENT
    with chdir(folder), RunningExample(*words, environment=environment) as running:
        if has_main:
            if until := _UNTIL_STOPPED.get(example.name):
                running.read_until(until)
                code = running.stopped()
            else:
                code = running.ended()
            lines = list(_kept(running.said, _KEPT[example.name]))
        else:
            running.read_until(r"went from REBALANCING to RUNNING\.")
            shown_partitions = _shown_partitions(example)
            few = _FEWER.get(example.name, _FEW)
            _await_records(example, servers, shown_partitions, few)
            code = running.stopped()
            consumed = _consumed(running.said, shown_partitions, few)
            lines = [*re.findall(_STATES, running.said), *consumed]
    text = "\n".join([f"$ headrace example {example.name}{shown}", *lines, ""])
    return Run(running.said, code, text)


def _kept(said: str, pattern: str) -> Iterator[str]:
    for line in said.splitlines():
        if re.match(rf"\s*(?:{pattern})", line):
            text = line
            for mask, shown in _MASKED:
                text = re.sub(mask, shown, text)
            yield text.rstrip()


def _shown_partitions(example: Example) -> dict[str, int]:
    """Return a partition with enough records of each topic that a transcript shows."""
    app: KafkaStreams = example.module("app").app
    feed = example.module("feed")
    shown = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        in_process(app, feed.TOPICS, Path(folder)) as run,
    ):
        run.write(islice(feed.feed(), _RECORDS))
        log = run.query.log
        for topic in islice(Encoding(app).sinks, _FEW):
            names = [TopicPartition(topic, each) for each in range(log.partition_count(topic))]
            ends = log.end_offsets(names)
            if partitions := [each.partition for each in names if ends[each] >= _FEW]:
                shown[topic] = partitions[0]
    return shown


def _await_records(example: Example, servers: str | None, shown: dict[str, int], few: int) -> None:
    """Wait until the partitions that are shown have enough records."""
    config = StreamsConfig(bootstrap_servers=servers)
    config = config if servers else config_for(example.name, config)
    with closing(open_log(config)) as log:
        for topic, partition in shown.items():
            _await_few(log, TopicPartition(topic, partition), few)


def _await_few(log: TopicLog, name: TopicPartition, few: int) -> None:
    def has_few() -> bool:
        # The marks of transactions have offsets, too.
        end = log.end_offsets([name])[name]
        return sum(map(len, log.read(name, 0, end))) >= few

    await_that(has_few, f"{few} records in partition {name.partition} of {name.topic}")


def _consumed(said: str, shown: dict[str, int], few: int) -> Iterator[str]:
    """Yield the output of the commands that the example prints at its end."""
    for words in re.findall(r"^  headrace (consume .+)$", said, re.MULTILINE):
        _, topic, *flags = words.split()
        if topic not in shown:
            continue
        program = flags[flags.index("--app") + 1]
        some = ["--partition", str(shown[topic]), "--max-messages", str(few)]
        done = CliRunner().invoke(commands, ["consume", topic, *flags, *some])
        assert done.exit_code == 0, done.output
        yield f"$ headrace consume {topic} --from-beginning --app {program} {' '.join(some)}"
        yield from (line.expandtabs(4).rstrip() for line in done.stdout.splitlines())


def clear(servers: str) -> None:
    """Delete the topics of a broker: examples use the same names."""
    with closing(open_log(StreamsConfig(bootstrap_servers=servers))) as log:
        for topic in log.list_topics():
            if not topic.startswith("__"):
                log.delete_topic(topic)


def main() -> None:
    """Write the transcripts of all examples, or of those that are named."""
    FOLDER.mkdir(exist_ok=True)
    logging.getLogger("headrace").addHandler(logging.NullHandler())
    logging.getLogger("headrace").propagate = False
    with start_broker() as broker:
        for example in examples():
            if len(sys.argv) > 1 and example.name not in sys.argv[1:]:
                continue
            for log in LOGS:
                servers = broker.address if log == "kafka" else None
                with tempfile.TemporaryDirectory() as folder:
                    done = run(example, servers, Path(folder))
                path_of(example, log).write_text(done.transcript)
                print(f"{example.name} on {log}: code {done.code}", flush=True)
            clear(broker.address)


if __name__ == "__main__":
    main()
