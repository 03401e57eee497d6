"""Random stream programs with random input, as scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

Scenario = dict[str, Any]
"""A scenario as it is written."""

KEYS = ("a", "b", "c", "dd")
TEXTS = ("x", "y", "zz", "a", "b")
NUMBERS = (-2, 0, 1, 2, 3, 7)


@dataclass(frozen=True)
class Part:
    """The result of an operation: a stream, a table or a grouping, with its types."""

    id: str
    kind: str
    value: str
    key: str = "string"
    windowed: bool = False
    """Whether keys are windowed, so that the window closes some time."""
    rekeyed: bool = False
    """Whether keys may have changed since the records were partitioned."""


@dataclass
class Program:
    """A scenario that is being written."""

    random: Random
    sources: list[dict[str, Any]] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    stores: int = 0

    def add(self, op: str, inputs: list[Part], kind: str, value: str, **more: Any) -> Part:
        """Write an operation and remember what it gives."""
        key = more.pop("key_type", inputs[0].key)
        windowed = more.pop("windowed", inputs[0].windowed)
        rekeyed = more.pop("rekeyed", any(part.rekeyed for part in inputs))
        name = f"o{len(self.operations)}"
        if value != inputs[0].value:
            more["value"] = value
        self.operations.append({"id": name, "op": op, "in": [part.id for part in inputs], **more})
        part = Part(name, kind, value, key, windowed, rekeyed)
        self.parts.append(part)
        return part

    def stored(self, *, likely: float = 0.5) -> dict[str, Any]:
        """Return how a table is stored: a name, a kind of store, a cache, or nothing said."""
        options: dict[str, Any] = {}
        if self.random.random() < likely:
            self.stores += 1
            options["store"] = f"st{self.stores}"
            if self.random.random() < 0.3:
                options["materialized"] = {
                    name: True for name in ("in_memory",) if self.random.random() < 0.6
                } | ({"caching": False} if self.random.random() < 0.3 else {})
        return options

    def named(self) -> dict[str, Any]:
        """Return a name for some of the steps."""
        if self.random.random() < 0.12:
            return {"named": f"step-{len(self.operations)}"}
        return {}

    def pick(self, wanted: Callable[[Part], bool]) -> Part | None:
        """Return one of the parts that fit."""
        fitting = [part for part in self.parts if wanted(part)]
        return self.random.choice(fitting) if fitting else None


def random_scenario(seed: int, *, keys_stay: bool = False) -> Scenario:
    """Return the scenario of a seed: always the same one.

    Args:
        seed: Which scenario.
        keys_stay: Whether no record may change its key, so that each partition stands alone.
    """
    operations = KEEPING_KEYS if keys_stay else OPERATIONS
    random = Random(seed)
    program = Program(random)
    for number in range(random.choice((1, 1, 2, 2, 3))):
        _add_source(program, number, keys_stay=keys_stay)
    for _ in range(random.randint(1, 6)):
        random.choice(operations)(program)
    _write_out(program)
    scenario: Scenario = {
        "name": f"fuzz/{seed}",
        "why": "a random program",
        "config": _config(random),
        "sources": program.sources,
        "operations": program.operations,
        "steps": _steps(program),
    }
    return scenario


def _config(random: Random) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if random.random() < 0.25:
        config["cache"] = 1_000_000
    if random.random() < 0.2:
        config["optimization"] = "all"
    if random.random() < 0.1:
        config["store"] = "in_memory"
    return config


def _add_source(program: Program, number: int, *, keys_stay: bool) -> None:
    kind = program.random.choice(("stream", "stream", "table"))
    if number == 2 and not keys_stay:
        kind = program.random.choice(("stream", "table", "global_table"))
    value = program.random.choice(("string", "long"))
    source: dict[str, Any] = {
        "id": f"s{number}",
        "type": kind,
        "topic": f"in{number}",
        "key": "string",
        "value": value,
    }
    if kind == "table" and program.random.random() < 0.4:
        source["store"] = f"source{number}"
        if program.random.random() < 0.2:
            source["materialized"] = {"versioned": 50}
    program.sources.append(source)
    program.parts.append(Part(f"s{number}", kind, value))


def _steps(program: Program) -> list[dict[str, Any]]:
    random = program.random
    time = random.choice((0, 0, 10, 100))
    steps: list[dict[str, Any]] = []
    for _ in range(random.randint(3, 25)):
        source = random.choice(program.sources)
        time += random.choice((0, 0, 1, 1, 2, 3, 5, 8, 13))
        late = random.choice((0, 0, 0, 0, 1, 4, 9, 20))
        values = TEXTS if source["value"] == "string" else NUMBERS
        step: dict[str, Any] = {
            "pipe": source["topic"],
            "key": None if random.random() < 0.04 else random.choice(KEYS),
            "value": None if random.random() < 0.12 else random.choice(values),
            "ts": max(0, time - late),
        }
        if random.random() < 0.05:
            step["headers"] = [["h", str(len(steps))]]
        steps.append(step)
    if random.random() < 0.5:
        for source in program.sources:
            values = TEXTS if source["value"] == "string" else NUMBERS
            step = {"pipe": source["topic"], "key": "z", "value": values[0], "ts": time + 200}
            steps.append(step)
    return steps


def _write_out(program: Program) -> None:
    """Write every stream and table to a topic that nothing else uses."""
    used = {name for operation in program.operations for name in operation["in"]}
    for part in list(program.parts):
        if part.id in used or part.kind not in ("stream", "table"):
            continue
        end = part
        if part.kind == "table":
            end = program.add("to_stream", [part], "stream", part.value)
        program.operations.append(
            {"id": f"to-{end.id}", "op": "to", "in": [end.id], "topic": f"out-{end.id}"}
        )


def _plain_stream(part: Part) -> bool:
    return part.kind == "stream" and not part.windowed


def _predicate(random: Random, value: str) -> str:
    if value == "long":
        return random.choice(("gt:0", "even", "positive", "ne:2", "not_null", "is_null"))
    return random.choice(("starts_with:x", "ne:y", "not_null", "contains:a", "is_null"))


def _mapping(random: Random, value: str) -> tuple[str, str]:
    if value == "long":
        return random.choice(
            (("add:1", "long"), ("mul:2", "long"), ("str", "string"), ("null_if:2", "long"))
        )
    return random.choice((("upper", "string"), ("append:!", "string"), ("len", "long")))


def stateless(program: Program) -> None:
    part = program.pick(_plain_stream)
    if part is None:
        return
    random = program.random
    op = random.choice(("filter", "filter_not", "map_values", "peek", "flat_map_values"))
    if op in ("filter", "filter_not"):
        fn = _predicate(random, part.value)
        program.add(op, [part], "stream", part.value, fn=fn, **program.named())
    elif op == "peek":
        program.add(op, [part], "stream", part.value)
    elif op == "flat_map_values":
        program.add(op, [part], "stream", part.value, fn="repeat:2", **program.named())
    else:
        fn, value = _mapping(random, part.value)
        program.add(op, [part], "stream", value, fn=fn, **program.named())


def key_change(program: Program) -> None:
    part = program.pick(_plain_stream)
    if part is None:
        return
    fn = program.random.choice(("value|str", "value|str|first:1", "key", "const:k"))
    if program.random.random() < 0.3:
        mapped, value = _mapping(program.random, part.value)
        program.add("map", [part], "stream", value, key_fn=fn, value_fn=mapped, rekeyed=True)
    else:
        program.add("select_key", [part], "stream", part.value, key_fn=fn, rekeyed=True)


def merge(program: Program) -> None:
    one = program.pick(_plain_stream)
    if one is None:
        return
    other = program.pick(lambda part: _plain_stream(part) and part.value == one.value)
    if other is not None and other.id != one.id:
        program.add("merge", [one, other], "stream", one.value)


def to_table(program: Program) -> None:
    part = program.pick(_plain_stream)
    if part is not None:
        program.add("to_table", [part], "table", part.value, rekeyed=False, **program.stored())


def repartition(program: Program) -> None:
    part = program.pick(_plain_stream)
    if part is not None:
        program.add("repartition", [part], "stream", part.value, rekeyed=False)


def _grouped(program: Program, *, keys_stay: bool = False) -> Part | None:
    part = program.pick(_plain_stream)
    if part is None:
        return None
    if keys_stay or program.random.random() < 0.5:
        return program.add("group_by_key", [part], "grouped", part.value)
    fn = program.random.choice(("value|str", "value|str|first:1", "const:g"))
    more = {"named": f"g{len(program.operations)}"} if program.random.random() < 0.2 else {}
    return program.add("group_by", [part], "grouped", part.value, key_fn=fn, rekeyed=True, **more)


def _folded(program: Program, grouped: Part, **more: Any) -> Part:
    random = program.random
    more = {"rekeyed": False, **more}
    session = more.pop("session", False)
    op = random.choice(("count", "reduce", "aggregate"))
    stored = program.stored()
    if op == "count":
        return program.add(op, [grouped], "table", "long", **stored, **more)
    if op == "reduce":
        fn = "sum" if grouped.value == "long" else random.choice(("concat", "last", "first"))
        return program.add(op, [grouped], "table", grouped.value, fn=fn, **stored, **more)
    if grouped.value == "long":
        aggregate: dict[str, Any] = {"init": 0, "fn": "sum"}
        merger = "sum"
    else:
        aggregate = {"init": "0", "fn": "concat"}
        merger = "concat"
    if session:
        aggregate["merger"] = merger
    return program.add(op, [grouped], "table", grouped.value, **aggregate, **stored, **more)


def aggregation(program: Program) -> None:
    grouped = _grouped(program)
    if grouped is not None:
        _folded(program, grouped)


def aggregation_by_key(program: Program) -> None:
    grouped = _grouped(program, keys_stay=True)
    if grouped is not None:
        _folded(program, grouped)


def _window(random: Random) -> dict[str, Any]:
    kind = random.choice(("tumbling", "tumbling", "hopping", "sliding", "session"))
    window: dict[str, Any] = {"type": kind, "grace": random.choice((0, 0, 3, 10))}
    if kind == "tumbling":
        window["size"] = random.choice((5, 10))
    elif kind == "hopping":
        window |= {"size": 10, "advance": random.choice((3, 5))}
    elif kind == "sliding":
        window["difference"] = random.choice((5, 10))
    else:
        window["gap"] = random.choice((3, 6))
    return window


def _windowed(program: Program, grouped: Part) -> Part:
    window = _window(program.random)
    more: dict[str, Any] = {"emit": "on_window_close"} if program.random.random() < 0.25 else {}
    windowed = program.add(
        "windowed_by", [grouped], "windowed", grouped.value, window=window, **more
    )
    table = _folded(program, windowed, windowed=True, session=window["type"] == "session")
    if not more and program.random.random() < 0.3:
        table = program.add("suppress", [table], "table", table.value, buffer="unbounded")
    return table


def windows_by_key(program: Program) -> None:
    grouped = _grouped(program, keys_stay=True)
    if grouped is not None:
        _windowed(program, grouped)


def windowed_aggregation(program: Program) -> None:
    grouped = _grouped(program)
    if grouped is None:
        return
    table = _windowed(program, grouped)
    if program.random.random() < 0.2:
        stream = program.add("to_stream", [table], "stream", table.value)
        fn = program.random.choice(("key|win_key", "key|win_str"))
        program.add(
            "select_key",
            [stream],
            "stream",
            table.value,
            key_fn=fn,
            key="string",
            key_type="string",
            windowed=False,
            rekeyed=True,
        )


def cogroup(program: Program) -> None:
    one, other = _grouped(program), _grouped(program)
    if one is None or other is None:
        return
    fns = ["sum" if part.value == "long" else "count" for part in (one, other)]
    together = program.add("cogroup", [one, other], "cogrouped", "long", fns=fns)
    program.add(
        "aggregate",
        [together],
        "table",
        "long",
        init=0,
        rekeyed=False,
        **program.stored(),
    )


def _plain_table(part: Part) -> bool:
    return part.kind == "table" and not part.windowed


def table_step(program: Program) -> None:
    part = program.pick(lambda part: part.kind == "table")
    if part is None:
        return
    random = program.random
    op = random.choice(("filter", "filter_not", "map_values", "to_stream"))
    if op == "to_stream":
        program.add(op, [part], "stream", part.value)
        return
    stored = {} if part.windowed else program.stored(likely=0.3)
    if op == "map_values":
        fn, value = _mapping(random, part.value)
        program.add(op, [part], "table", value, fn=fn, **stored)
    else:
        program.add(op, [part], "table", part.value, fn=_predicate(random, part.value), **stored)


def regroup(program: Program) -> None:
    part = program.pick(_plain_table)
    if part is None:
        return
    random = program.random
    grouped = program.add(
        "group_by",
        [part],
        "grouped_table",
        part.value,
        key_fn=random.choice(("value|str", "value|str|first:1", "key", "const:g")),
    )
    op = random.choice(("count", "reduce", "aggregate"))
    if op == "count":
        program.add(op, [grouped], "table", "long", **program.stored())
    elif grouped.value == "long":
        more: dict[str, Any] = {"init": 0} if op == "aggregate" else {}
        program.add(
            op, [grouped], "table", "long", fn="sum", subtract="sub", **more, **program.stored()
        )
    else:
        more = {"init": "0"} if op == "aggregate" else {}
        program.add(
            op,
            [grouped],
            "table",
            "string",
            fn="concat",
            subtract="unconcat",
            **more,
            **program.stored(),
        )


def time_limit(program: Program) -> None:
    part = program.pick(_plain_table)
    if part is None:
        return
    random = program.random
    buffer: Any = random.choice(("unbounded", {"max_records": 2, "full": "emit_early"}))
    limit = random.choice((0, 3, 10))
    program.add("suppress", [part], "table", part.value, time_limit=limit, buffer=buffer)


def stream_join(program: Program) -> None:
    one, other = program.pick(_plain_stream), program.pick(_plain_stream)
    if one is None or other is None:
        return
    random = program.random
    window: dict[str, Any] = {"grace": random.choice((0, 2, 10))}
    if random.random() < 0.6:
        window["difference"] = random.choice((1, 5, 10))
    else:
        window |= {"before": random.choice((0, 3, 8)), "after": random.choice((0, 3, 8))}
    op = random.choice(("join", "left_join", "outer_join"))
    more = {"in_memory": True} if random.random() < 0.2 else {}
    program.add(
        op,
        [one, other],
        "stream",
        "string",
        fn="concat",
        window=window,
        rekeyed=False,
        **more,
        **program.named(),
    )


def stream_table_join(program: Program) -> None:
    stream, table = program.pick(_plain_stream), program.pick(_plain_table)
    if stream is None or table is None:
        return
    op = program.random.choice(("join", "left_join"))
    program.add(
        op,
        [stream, table],
        "stream",
        "string",
        fn="concat",
        rekeyed=False,
        **program.named(),
    )


def global_join(program: Program) -> None:
    stream = program.pick(_plain_stream)
    table = program.pick(lambda part: part.kind == "global_table")
    if stream is None or table is None:
        return
    op = program.random.choice(("join", "left_join"))
    fn = program.random.choice(("key", "value|str|first:1"))
    program.add(op, [stream, table], "stream", "string", fn="concat", key_fn=fn)


def table_join(program: Program) -> None:
    one, other = program.pick(_plain_table), program.pick(_plain_table)
    if one is None or other is None:
        return
    op = program.random.choice(("join", "left_join", "outer_join"))
    program.add(
        op,
        [one, other],
        "table",
        "string",
        fn="concat",
        **program.stored(likely=0.4),
        **program.named(),
    )


def foreign_key_join(program: Program) -> None:
    one, other = program.pick(_plain_table), program.pick(_plain_table)
    if one is None or other is None:
        return
    op = program.random.choice(("fk_join", "fk_left_join"))
    fn = program.random.choice(("value|str|first:1", "value|str"))
    program.add(
        op,
        [one, other],
        "table",
        "string",
        fk_fn=fn,
        fn="concat",
        **program.stored(likely=0.3),
    )


OPERATIONS: tuple[Callable[[Program], None], ...] = (
    stateless,
    stateless,
    key_change,
    merge,
    to_table,
    repartition,
    aggregation,
    aggregation,
    windowed_aggregation,
    windowed_aggregation,
    cogroup,
    table_step,
    table_step,
    regroup,
    time_limit,
    stream_join,
    stream_join,
    stream_table_join,
    global_join,
    table_join,
    foreign_key_join,
)

KEEPING_KEYS: tuple[Callable[[Program], None], ...] = (
    stateless,
    merge,
    to_table,
    aggregation_by_key,
    aggregation_by_key,
    windows_by_key,
    windows_by_key,
    table_step,
    time_limit,
    stream_join,
    stream_table_join,
    table_join,
)
