"""Every example has the shape that a reader expects, and a feed that repeats itself."""

from __future__ import annotations

import ast
import logging
import os
import re
import sys
import threading
from contextlib import closing
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from headrace import KafkaStreams
from headrace.brokers import TopicPartition, open_log
from headrace.config import StreamsConfig
from headrace.config.topology_defaults import topology_defaults
from headrace.errors import StreamsError
from headrace.examples.catalogue import Example, examples, find_example
from headrace.examples.checking import on_driver
from headrace.examples.feeding import (
    Encoding,
    FeedRecord,
    lines_from_records,
    print_lines,
    records_from_lines,
    write_paced,
)
from headrace.examples.running import create_topics, fed
from headrace.examples.variants import Variant
from tests.example_pages import page_of, svg_of
from tests.waiting import PATIENCE

every_example = pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
every_topology = pytest.mark.parametrize(
    "example", [each for each in examples() if each.has_topology], ids=lambda each: each.name
)

LINES = 150
FEW = 300
"""How many records of a feed that may have no end."""


def test_every_folder_is_in_the_catalogue() -> None:
    folders = {path.parent for path in Path(examples()[0].folder.parent).glob("*/__init__.py")}

    assert folders == {each.folder for each in examples()}
    assert find_example("user-views").summary == "Count the views of each user."
    with pytest.raises(StreamsError, match=r"There is no example 'nothing'. .*user-views"):
        find_example("nothing")


NAMES = {
    "sms-parts": "incoming-msg-parts-processor incoming-msg-parts incoming-messages",
    "connections": "heartbeats connection-deployment-scheme",
    "send-responses": "send-in-progress msg-parts-send-resp mt-messages",
    "delivery-reports": "send-in-progress msg-parts-send-resp msg-parts-delivery mt-messages",
    "captcha": "logs captchaStream captchaStore browserActionsCountStore counterStore",
    "product-views": "streams-example logs counter_topic Counts",
    "intermediate-topic": "my-topic",
    "greetings": "greetings",
    "words": "words aggregated-words",
    "orders": "orders-stream-app general_orders restaurant_orders general-orders-revenue",
    "stock-trades": "trade-aggregates",
    "music": "all-songs song-play-count top-five-songs-by-genre top-five-songs",
    "movies": "raw-ratings raw-movies rated-movies",
}
"""The names that the documents give to applications, topics and stores."""


@pytest.mark.parametrize("name", NAMES)
def test_ids_topics_and_stores_have_the_names_of_the_document(name: str) -> None:
    app: KafkaStreams = find_example(name).module("app").app
    text = str(app.topology.describe())

    lists = re.findall(r"(?:topics|stores): \[(.*?)\]", text)
    found = {each for names in lists for each in names.split(", ")}
    found |= {*re.findall(r"topic: ([^\s)]+)", text), app.config.application_id}
    assert {*NAMES[name].split()} <= found


@every_example
def test_an_example_has_its_files_and_a_short_program(example: Example) -> None:
    needed = {example.program.name, "test_app.py", "README.md"}
    needed |= {"feed.py", "topology.svg"} if example.has_topology else set()

    assert needed - {path.name for path in example.folder.iterdir()} == set()
    assert len(example.program.read_text().splitlines()) <= LINES


@every_example
def test_a_file_imports_its_neighbours_so_that_a_copy_can_too(example: Example) -> None:
    for path in example.folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("headrace.examples") for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                assert node.module != example.package, "write `from headrace.examples.x.y import`"


@every_topology
def test_a_feed_repeats_itself_and_fits_the_program(example: Example) -> None:
    module = example.module("feed")
    records = list(islice(module.feed(), FEW))
    encoding = Encoding(example.module("app").app, module.TOPICS)

    assert list(islice(module.feed(), FEW)) == records
    assert records
    assert {record.topic for record in records} <= module.TOPICS.keys()
    assert module.PER_SECOND > 0
    raw = [encoding.raw(record) for record in records]
    again = Encoding(example.module("app").app, module.TOPICS)
    lines = records_from_lines(lines_from_records(records))
    assert [again.raw(record) for record in lines] == raw


@every_example
def test_a_page_tells_the_story_and_what_to_change(example: Example) -> None:
    page = (example.folder / "README.md").read_text()

    assert page.startswith(f"# {example.name}\n")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert {"The original and ours", "A run", "Bad input", "Three things to change"} <= {*headings}
    assert len(re.findall(r"^\d\. ", page.partition("## Three things")[2], re.MULTILINE)) == 3


@every_example
def test_the_transcript_is_that_of_a_run(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.chdir(tmp_path)
    page = example.folder / "README.md"

    # `tests/test_documentation.py` runs the other kind.
    assert re.search(r"^```console\n\$ headrace |^```python\n", page.read_text(), re.MULTILINE)
    assert page.read_text() == page_of(page), "Run `make fix`."


@every_topology
def test_the_picture_is_the_generated_one(example: Example) -> None:
    assert "![The topology](topology.svg)" in (example.folder / "README.md").read_text()
    picture = (example.folder / "topology.svg").read_text()
    assert picture == svg_of(example), "Run `make fix`."


def test_a_paced_feed_ends_with_its_records_or_when_it_is_stopped(tmp_path: Path) -> None:
    example = find_example("user-views")
    module, app = example.module("feed"), example.module("app").app
    log = open_log(StreamsConfig(state_dir=tmp_path))
    log.create_topic("views", partitions=2)
    encoding = Encoding(app, module.TOPICS)
    stopped = threading.Event()
    stopped.set()

    all_of_it = write_paced(log, encoding, module.feed(), 1e6, threading.Event())
    at_once = write_paced(log, encoding, module.feed(), 1, stopped)

    assert (all_of_it, at_once) == (18, 1)
    names = [TopicPartition("views", 0), TopicPartition("views", 1)]
    assert sum(log.end_offsets(names).values()) == 19
    log.close()


def test_the_end_of_a_feed_is_reported_and_a_stop_is_not(tmp_path: Path) -> None:
    example = find_example("user-views")
    app = KafkaStreams(example.module("app").app.topology, application_id="fed", state_dir=tmp_path)
    with closing(open_log(app.config)) as log:
        create_topics(log, example.module("feed").TOPICS)
    module = example.module("feed")
    quick: Any = Variant("", module.TOPICS, module.feed, PER_SECOND=1e6)
    slow: Any = Variant("", module.TOPICS, module.feed, PER_SECOND=1)
    ends: SimpleQueue[int] = SimpleQueue()

    with fed(app, quick, ends.put):
        assert ends.get(timeout=PATIENCE) == 18
    with fed(app, slow, ends.put):
        pass

    assert ends.empty()


def test_printed_lines_end_with_the_reader_of_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)

        print_lines(find_example("orders").module("feed").feed())


def test_bytes_and_headers_come_back_from_their_line() -> None:
    record = FeedRecord("t", "k", b"\xff", 1, 0, (("trace", b"a"),))

    (line,) = lines_from_records([record])

    assert '"value":{"undecodable":"ff"}' in line
    assert [*records_from_lines([line])] == [record]


def test_the_lines_of_an_example_are_those_of_a_program() -> None:
    app = find_example("user-views").module("app").app
    nodes = app.topology.lowered(topology_defaults(app.config)).graph.nodes
    with on_driver(app) as run:
        run.write([FeedRecord("views", None, None, 0)])

        assert nodes["KSTREAM-AGGREGATE-0000000002"].origin.startswith("app.py:")
        (letter,) = run.read("user-views-dead")
    assert b"app.py" in (letter.headers.last("__streams.errors.stacktrace") or b"")
