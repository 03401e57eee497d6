"""The action language of processors: what one instance does at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from headrace import Cancellable, Headers, PunctuationType
from headrace_conformance import stores
from headrace_conformance.functions import Scope, expression
from headrace_conformance.stores import StoreKind
from headrace_conformance.values import UserError, text_of

Action: TypeAlias = Mapping[str, Any]
StoreKinds: TypeAlias = Mapping[str, StoreKind]

_CLOCKS = {
    "stream_time": PunctuationType.STREAM_TIME,
    "wall_clock": PunctuationType.WALL_CLOCK_TIME,
}


@dataclass
class Memory:
    """The memory of one processor of a scenario, which outlives its instances."""

    variables: dict[str, Any] = field(default_factory=dict)
    cancellables: dict[str, Cancellable] = field(default_factory=dict)
    made_in_init: list[int] = field(default_factory=list)
    """The schedules that ``init`` made, in order."""
    initialised: bool = False


@dataclass(frozen=True)
class Moment:
    """The record that actions are about; in a punctuation there is only a time."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = field(default_factory=Headers)
    is_punctuation: bool = False


class Script:
    """Runs actions for one instance of a processor."""

    def __init__(
        self,
        processor: Any,
        context: Any,
        memory: Memory,
        kinds: StoreKinds,
        schedules: Sequence[Action],
        record_type: Any,
    ) -> None:
        self._processor = processor
        self._context = context
        self._memory = memory
        self._kinds = kinds
        self._schedules = schedules
        self._record_type = record_type
        self._starting = False

    def start(self, actions: Sequence[Action]) -> None:
        """Do the actions of ``init``; after a renewal, only make its schedules again."""
        if self._memory.initialised:
            for index in self._memory.made_in_init:
                self._schedule(index)
            return
        self._memory.initialised = True
        self._starting = True
        self.run(actions, Moment(None, None, -1))
        self._starting = False

    def run(self, actions: Sequence[Action], moment: Moment) -> None:
        """Do ``actions`` in order."""
        for action in actions:
            self._actions[action["do"]](self, action, moment)

    def scope(self, moment: Moment) -> Scope:
        """Return what expressions may refer to at ``moment``."""
        return Scope(moment.key, moment.value, lambda name: self._looked_up(name, moment))

    def _evaluated(self, source: Any, moment: Moment) -> Any:
        return expression(source)(self.scope(moment))

    def _looked_up(self, name: str, moment: Moment) -> Any:
        if name.startswith("$"):
            return self._memory.variables.get(name[1:])
        if name.startswith("@header:"):
            header = moment.headers.last(name.removeprefix("@header:"))
            return None if header is None else header.decode()
        return _FACTS[name](self._context, moment)

    def _let(self, action: Action, moment: Moment) -> None:
        self._memory.variables[action["as"]] = self._evaluated(action["expr"], moment)

    def _if(self, action: Action, moment: Moment) -> None:
        holds = self._evaluated(action["cond"], moment) is True
        self.run(action.get("then" if holds else "else", ()), moment)

    def _use_store(self, action: Action, moment: Moment) -> None:
        name = action["store"]
        store, kind = self._context.get_state_store(name), self._kinds[name].kind
        key = self._evaluated(action.get("key", "key"), moment)
        where = {
            part: self._evaluated(action.get(part, "@ts"), moment)
            for part in ("ts", "start", "end")
        }
        result: Any
        match action["do"]:
            case "get":
                result = stores.read(store, kind, key, where)
            case "as_of":
                result = stores.plain(store.get(key, as_of=where["ts"]))
            case "delete":
                result = stores.delete(store, kind, key, where)
            case verb:
                write = stores.write if verb == "put" else stores.write_if_absent
                value = self._evaluated(action.get("value", "value"), moment)
                result = write(store, kind, key, value, where)
        if "as" in action:
            self._memory.variables[action["as"]] = result

    def _each(self, action: Action, moment: Moment) -> None:
        name = action["store"]
        query = {"method": action.get("method", "all")} | {
            part: self._evaluated(action[part], moment)
            for part in ("key", "from", "to")
            if part in action
        }
        found = stores.rows(self._context.get_state_store(name), self._kinds[name].kind, query)
        for entry in found:
            self._memory.variables |= {
                "k": entry["key"],
                "v": entry["value"],
                "ts": entry.get("ts"),
                "start": entry.get("start"),
                "end": entry.get("end"),
            }
            self.run(action["then"], moment)

    def _forward(self, action: Action, moment: Moment) -> None:
        headers = moment.headers
        for name, source in action.get("headers", ()):
            value = self._evaluated(source, moment)
            headers = headers.adding(name, None if value is None else text_of(value).encode())
        record = self._record_type(
            self._evaluated(action.get("key", "key"), moment),
            self._evaluated(action.get("value", "value"), moment),
            self._evaluated(action.get("ts", "@ts"), moment),
            headers,
        )
        self._context.forward(record, action.get("to"))

    def _make_schedule(self, action: Action, _moment: Moment) -> None:
        index = next(at for at, known in enumerate(self._schedules) if known is action)
        if self._starting:
            self._memory.made_in_init.append(index)
        self._schedule(index)

    def _schedule(self, index: int) -> None:
        action = self._schedules[index]
        cancellable = self._context.schedule(
            action["interval"],
            _CLOCKS[action["type"]],
            getattr(self._processor, f"punctuate_{index}"),
            start_time=action.get("start"),
        )
        self._memory.cancellables[action.get("as", "")] = cancellable

    def _cancel(self, action: Action, _moment: Moment) -> None:
        self._memory.cancellables[action["as"]].cancel()

    def _commit(self, _action: Action, _moment: Moment) -> None:
        self._context.commit()

    def _fail(self, _action: Action, _moment: Moment) -> None:
        raise UserError("fail")

    _actions: ClassVar[Mapping[str, Callable[[Script, Action, Moment], None]]] = {
        "let": _let,
        "if": _if,
        "get": _use_store,
        "put": _use_store,
        "put_if_absent": _use_store,
        "delete": _use_store,
        "as_of": _use_store,
        "each": _each,
        "forward": _forward,
        "schedule": _make_schedule,
        "cancel": _cancel,
        "commit": _commit,
        "fail": _fail,
    }


_FACTS: Mapping[str, Callable[[Any, Moment], Any]] = {
    "@ts": lambda _context, moment: moment.timestamp,
    "@now": lambda context, moment: (
        moment.timestamp if moment.is_punctuation else context.current_system_time_ms()
    ),
    "@stream_time": lambda context, _moment: context.current_stream_time_ms(),
    "@wall_clock": lambda context, _moment: context.current_system_time_ms(),
    "@topic": lambda context, _moment: _of_metadata(context, "topic"),
    "@partition": lambda context, _moment: _of_metadata(context, "partition"),
    "@offset": lambda context, _moment: _of_metadata(context, "offset"),
}


def _of_metadata(context: Any, part: str) -> Any:
    metadata = context.record_metadata
    if metadata is None:  # in a punctuation, where Kafka has a record of no topic
        return None if part == "topic" else -1
    return getattr(metadata, part)
