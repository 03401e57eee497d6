"""Wrong programs fail when they are built, and the message names the step and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace import (
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    Topology,
    TopologyError,
    ValueTransformerWithKey,
    Window,
)


class Nothing(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


class BringsNoBuilder(Nothing):
    def stores(self) -> Any:
        return ["counts"]


class BringsNone(Nothing):
    def stores(self) -> Any:
        return None


class Picky(Nothing):
    def __init__(self) -> None:
        raise RuntimeError("no network")


class OwnStore:
    """Not a store builder."""

    def __repr__(self) -> str:
        return "OwnStore()"


class Calendar(TimeWindows):
    def windows_for(self, timestamp: int) -> list[Window]:
        return [Window(0, timestamp + 1)]


class Lazy(SessionWindows):
    @property
    def retention_ms(self) -> int:
        return 0


class Backwards(JoinWindows):
    @property
    def retention_ms(self) -> int:
        return 0


class TenSeconds(TimeWindows):
    def __init__(self) -> None:
        super().__init__("10s")


NO_BUILDER = (
    "OwnStore() is not a store builder, and Headrace cannot run stores of your own. "
    "Use one of `Stores`, for example `Stores.key_value(…)`."
)
STORE = Stores.key_value("counts", str, int)
ONE = Nothing()


def low_level() -> Topology:
    topology = Topology().add_source("source", "in", key=str, value=int)
    topology.add_processor("p", Nothing, "source")
    topology.add_sink("sink", "out", "p", key=str, value=int)
    topology.add_global_store(STORE, "g-source", "g", "g-processor", Nothing, key=str, value=int)
    return topology


LOW_LEVEL: list[tuple[str, Callable[[Topology], object], str]] = [
    (
        "duplicate name",
        lambda t: t.add_processor("p", Nothing, "source"),
        "Two steps are called 'p'. Give one of them another `name=`.",
    ),
    (
        "name of a global processor",
        lambda t: t.add_processor("g-processor", Nothing, "source"),
        "Two steps are called 'g-processor'. Give one of them another `name=`.",
    ),
    (
        "global processor with a name that is taken",
        lambda t: t.add_global_store(Stores.key_value("x", str, int), "y", "z", "p", Nothing),
        "Two steps are called 'p'. Give one of them another `name=`.",
    ),
    (
        "unknown parent",
        lambda t: t.add_sink("s", "o", "nobody"),
        "'s' names the parent 'nobody', which was not added. "
        "Add it first; so far there are ['g-source', 'p', 'sink', 'source'].",
    ),
    (
        "own parent",
        lambda t: t.add_processor("q", Nothing, "q"),
        "'q' is its own parent. Connect it to an earlier step.",
    ),
    (
        "sink as parent",
        lambda t: t.add_processor("q", Nothing, "sink"),
        "'q' names the sink 'sink' as its parent. A sink has no children.",
    ),
    (
        "global store as parent",
        lambda t: t.add_processor("q", Nothing, "g-source"),
        "'q' names 'g-source' as its parent, which only maintains a global store. "
        "Read another topic, and look the store up.",
    ),
    (
        "processor without parent",
        lambda t: t.add_processor("q", Nothing),
        "Processor 'q' has no parent. Connect it to a source or a processor.",
    ),
    (
        "sink without parent",
        lambda t: t.add_sink("q", "out"),
        "Sink 'q' has no parent. Connect it to a source or a processor.",
    ),
    (
        "source without topic",
        lambda t: t.add_source("q"),
        "Source 'q' has no topic. Give it at least one, or a pattern.",
    ),
    (
        "topics as a list",
        lambda t: t.add_source("q", ["a", "b"]),  # type: ignore[arg-type]
        "The name ['a', 'b'] of a topic is list, not text. "
        "Use 1 to 249 letters, digits, '.', '_' or '-'.",
    ),
    (
        "topic that is read already",
        lambda t: t.add_source("q", "in"),
        "Topic 'in' is read by 'source' and by 'q'. "
        "Read it once, and use that stream or table twice.",
    ),
    (
        "topic of a global store",
        lambda t: t.add_source("q", "g"),
        "Topic 'g' is read by 'g-source' and by 'q'. "
        "Read it once, and use that stream or table twice.",
    ),
    (
        "store of an unknown processor",
        lambda t: t.add_state_store(Stores.key_value("s", str, int), "nobody"),
        "'nobody' was not added, so no store can be connected to it.",
    ),
    (
        "store of a sink",
        lambda t: t.add_state_store(Stores.key_value("s", str, int), "sink"),
        "'sink' is not a processor, so no store can be connected to it.",
    ),
    (
        "store that was not added",
        lambda t: t.connect_processor_and_state_stores("p", "s"),
        "Processor 'p' uses store 's', which was not added. "
        "Add it with `add_state_store`, or pass its builder in `stores=`.",
    ),
    (
        "store of the user's own",
        lambda t: t.add_state_store(OwnStore(), "p"),  # type: ignore[arg-type]
        NO_BUILDER,
    ),
    (
        "global store of the user's own",
        lambda t: t.add_global_store(OwnStore(), "q", "other", "r", Nothing),  # type: ignore[arg-type]
        NO_BUILDER,
    ),
    (
        "two stores of one name",
        lambda t: t.add_state_store(Stores.key_value("counts", str, int), "p"),
        "Two stores are called 'counts'. Give one of them another name.",
    ),
    (
        "global store named as a store",
        lambda t: t.connect_processor_and_state_stores("p", "counts"),
        "Processor 'p' names the global store 'counts'. Every processor may read it: leave it out.",
    ),
    (
        "name with a blank",
        lambda t: t.add_processor("a b", Nothing, "source"),
        "The name 'a b' of a step has other characters. "
        "Use 1 to 249 letters, digits, '.', '_' or '-'.",
    ),
    (
        "offset reset that is none",
        lambda t: t.add_source("q", "new", auto_offset_reset="newest"),
        "`auto_offset_reset` of source 'q' is 'newest'. "
        'Use "earliest", "latest", "none", or a timedelta of zero or more.',
    ),
    (
        "processor instead of its class",
        lambda t: t.add_processor("q", Nothing(), "source"),  # type: ignore[arg-type]
        "Step 'q' was given a Processor, but every task needs its own. "
        "Give it the class, or `lambda: Nothing(…)`.",
    ),
    (
        "nothing callable",
        lambda t: t.add_processor("q", 7, "source"),  # type: ignore[arg-type]
        "Step 'q' was given 7, which makes no Processor.",
    ),
    (
        "same processor twice",
        lambda t: t.add_processor("q", lambda: ONE, "source"),
        "The supplier of step 'q' made the same object twice. Let it make a new one each time.",
    ),
    (
        "something else",
        lambda t: t.add_processor("q", lambda: "text", "source"),  # type: ignore[arg-type, return-value]
        "The supplier of step 'q' made 'text'. Let it make an instance of a subclass of Processor.",
    ),
    (
        "constructor that works",
        lambda t: t.add_processor("q", Picky, "source"),
        "The supplier of step 'q' failed: RuntimeError: no network. "
        "It is called while building, so do the work in `init`.",
    ),
    (
        "stores() with names",
        lambda t: t.add_processor("q", BringsNoBuilder, "source"),
        "The `stores()` of step 'q' gave 'counts'. "
        "Return store builders, for example `[Stores.key_value(…)]`.",
    ),
    (
        "stores() with nothing",
        lambda t: t.add_processor("q", BringsNone, "source"),
        "The `stores()` of step 'q' gave None. "
        "Return store builders, for example `[Stores.key_value(…)]`.",
    ),
]


@pytest.mark.parametrize(
    ("program", "message"), [pytest.param(*rest, id=id_) for id_, *rest in LOW_LEVEL]
)
def test_a_wrong_topology_is_refused_and_left_as_it_was(
    program: Callable[[Topology], object], message: str
) -> None:
    topology = low_level()
    before = str(topology.describe())

    with pytest.raises(TopologyError) as caught:
        program(topology)

    assert str(caught.value) == message
    assert str(topology.describe()) == before


def stream(builder: StreamsBuilder, topic: str = "in", **options: Any) -> Any:
    return builder.stream(topic, key=str, value=int, **options)


DSL: list[tuple[str, Callable[[StreamsBuilder], object], str]] = [
    (
        "duplicate name",
        lambda b: (stream(b, name="a"), stream(b, "other", name="a")),
        "Two steps are called 'a'. Give one of them another `name=`.",
    ),
    (
        "bad name",
        lambda b: stream(b).filter(lambda *_: True, name="a/b"),
        "The name 'a/b' of a step has other characters. "
        "Use 1 to 249 letters, digits, '.', '_' or '-'.",
    ),
    (
        "bad topic",
        lambda b: stream(b).to("a/b"),
        "The name 'a/b' of a topic has other characters. "
        "Use 1 to 249 letters, digits, '.', '_' or '-'.",
    ),
    (
        "no topic",
        lambda b: stream(b, []),  # type: ignore[arg-type]
        "Source 'KSTREAM-SOURCE-0000000000' was given no topic. Give it at least one.",
    ),
    (
        "overlapping topics",
        lambda b: (stream(b, ["a", "b"], name="ab"), stream(b, ["b"], name="b")),  # type: ignore[arg-type]
        "Sources 'ab' and 'b' both read topic 'b', but not the same set of topics: "
        "['a', 'b'] and ['b']. "
        "Read the same set in both, or read each topic once and `merge` the streams.",
    ),
    (
        "stream and table of one topic",
        lambda b: (stream(b, name="s"), b.table("in", key=str, value=int, name="t")),
        "Topic 'in' is read by 's' and by 't-source'. "
        "Read it once, and use that stream or table twice.",
    ),
    (
        "different serdes of one topic",
        lambda b: (stream(b, name="s"), b.stream("in", key=str, value=str, name="t")),
        "Sources 's' and 't' read the same topics, which are decoded once, "
        "but have different `value=`. Give both the same.",
    ),
    (
        "different extractors of one topic",
        lambda b: (
            stream(b, name="s", timestamp_extractor=lambda *_: 1),
            stream(b, name="t", timestamp_extractor=lambda *_: 2),
        ),
        "Sources 's' and 't' read the same topics, which are decoded once, "
        "but have different `timestamp_extractor=`. Give both the same.",
    ),
    (
        "different resets of one topic",
        lambda b: (
            stream(b, name="s", auto_offset_reset="earliest"),
            stream(b, name="t", auto_offset_reset=timedelta(hours=1)),
        ),
        "Sources 's' and 't' read the same topics with different `auto_offset_reset`: "
        "'earliest' and 3600000. Give both the same.",
    ),
    (
        "reset back in time",
        lambda b: stream(b, name="s", auto_offset_reset=timedelta(hours=-1)),
        f"`auto_offset_reset` of source 's' is {timedelta(hours=-1)!r}. "
        'Use "earliest", "latest", "none", or a timedelta of zero or more.',
    ),
    (
        "two stores of one name",
        lambda b: [b.table(t, key=str, value=int, materialized="s") for t in ("a", "b")],
        "Two stores are called 's'. Give one of them another name.",
    ),
    (
        "unknown store",
        lambda b: stream(b).process(Nothing, stores=["counts"], name="p"),
        "Processor 'p' uses store 'counts', which was not added. "
        "Add it with `add_state_store`, or pass its builder in `stores=`.",
    ),
    (
        "store name that is no list",
        lambda b: stream(b).process(Nothing, stores="counts", name="p"),
        "`stores=` of step 'p' is 'counts'. Give it a list: `stores=['counts']`.",
    ),
    (
        "store of the user's own",
        lambda b: b.add_state_store(OwnStore()),  # type: ignore[arg-type]
        NO_BUILDER,
    ),
    (
        "store of the user's own in a processor",
        lambda b: stream(b).process(Nothing, stores=[OwnStore()]),
        NO_BUILDER,
    ),
    (
        "stores that are no list",
        lambda b: stream(b).process(Nothing, stores=OwnStore(), name="p"),
        "`stores=` of step 'p' is OwnStore(). Give it a list: `stores=[OwnStore()]`.",
    ),
    (
        "global store of the user's own",
        lambda b: b.add_global_store(OwnStore(), "topic", Nothing),  # type: ignore[arg-type]
        NO_BUILDER,
    ),
    (
        "time windows of the user's own",
        lambda b: stream(b).group_by_key().windowed_by(Calendar("1s")),
        "Calendar overrides `windows_for` of TimeWindows, and Headrace cannot run windows of your "
        "own. Use TimeWindows itself, or a Processor with a store of `Stores.window`.",
    ),
    (
        "session windows of the user's own",
        lambda b: stream(b).group_by_key().windowed_by(Lazy("1s")),
        "Lazy overrides `retention_ms` of SessionWindows, and Headrace cannot run windows of your "
        "own. Use SessionWindows itself, or a Processor with a store of `Stores.window`.",
    ),
    (
        "join windows of the user's own",
        lambda b: stream(b).join(stream(b, "b"), lambda one, other: one, Backwards("1s")),
        "Backwards overrides `retention_ms` of JoinWindows, and Headrace cannot run windows of "
        "your own. Use JoinWindows itself, or a Processor with a store of `Stores.window`.",
    ),
    (
        "predicate with one argument",
        lambda b: stream(b).filter(lambda value: True, name="f"),
        "The function of step 'f' takes (value), but it is called with 2 arguments.",
    ),
    (
        "mapper with three arguments",
        lambda b: stream(b).map_values(lambda a, b, c: 1, name="f"),
        "The function of step 'f' takes (a, b, c), but it is called with 1 arguments, "
        "or with 2 if it wants the key first.",
    ),
    (
        "mapper that is no function",
        lambda b: stream(b).map_values("upper", name="f"),
        "Step 'f' was given 'upper', which is not a function.",
    ),
    (
        "predicate that is no function",
        lambda b: stream(b).filter(True, name="f"),
        "Step 'f' was given True, which is not a function.",
    ),
    (
        "topic function with two arguments",
        lambda b: stream(b).to(lambda key, value: "out", name="f"),
        "The function of step 'f' takes (key, value), but it is called with 3 arguments.",
    ),
    (
        "partitioner with two arguments",
        lambda b: stream(b).to("out", partitioner=lambda key, count: 0, name="f"),
        "The function of step 'f' takes (key, count), but it is called with 4 arguments.",
    ),
    (
        "partitioner of a repartition with two arguments",
        lambda b: stream(b).repartition(partitioner=lambda key, count: 0, name="f"),
        "The function of step 'f' takes (key, count), but it is called with 4 arguments.",
    ),
    (
        "two repartitions of one name",
        lambda b: [stream(b, t).repartition(name="same").to(f"{t}-out") for t in ("a", "b")],
        "Two repartitions are called 'same-repartition'. Give one of the groupings or joins that "
        "need them another `name=`, or use one grouping for both.",
    ),
    (
        "retention of a table",
        lambda b: b.table("t", materialized=Materialized("s", retention="1h")),
        "Store 's' was given `retention=`, which is for windows and sessions. "
        "Use `history_retention=` for a versioned table.",
    ),
]


def built(program: Callable[[StreamsBuilder], object]) -> str:
    builder = StreamsBuilder()
    program(builder)
    return str(builder.build().describe())


@pytest.mark.parametrize(
    ("program", "message"), [pytest.param(*rest, id=id_) for id_, *rest in DSL]
)
def test_a_wrong_program_is_refused(
    program: Callable[[StreamsBuilder], object], message: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        built(program)

    assert str(caught.value) == message


def test_windows_of_a_subclass_that_only_sets_lengths_are_accepted() -> None:
    windowed = stream(StreamsBuilder()).group_by_key().windowed_by(TenSeconds())

    assert windowed.windows.size_ms == 10_000


def test_a_transformer_must_be_one() -> None:
    class Identity(ValueTransformerWithKey[str, int, int]):
        def transform(self, key: str, value: int | None) -> int | None:
            return value

    table = StreamsBuilder().table("t", key=str, value=int)

    with pytest.raises(TopologyError, match="was given a ValueTransformerWithKey"):
        table.transform_values(Identity(), name="p")  # type: ignore[arg-type]


def test_a_processor_for_fixed_keys_must_be_one() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int)

    with pytest.raises(TopologyError, match="Let it make an instance of a subclass of FixedKey"):
        stream.process_values(Nothing, name="p")  # type: ignore[arg-type]


def test_joining_streams_of_two_builders_is_refused() -> None:
    one = StreamsBuilder().stream("one", key=str, value=str)
    other = StreamsBuilder().stream("other", key=str, value=str)

    with pytest.raises(TopologyError, match="different builders"):
        one.join(other, lambda left, right: left + right, JoinWindows(5), value=str)
