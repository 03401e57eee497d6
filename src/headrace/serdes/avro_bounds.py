"""Bounds of Avro schemas: a hostile one could fill the reader's memory or crash its process."""

from __future__ import annotations

from typing import Any, NamedTuple

_MOST_CALLS = 1_500
"""How deep the data may nest in fastavro's compiled reader, at most. It crashes at about 5,000."""

_MOST_SCHEMA_BYTES = 1 << 20
_MOST_NAMED_TYPES = 1_000
_MOST_DEPTH = 100
_MOST_EMPTY_VALUES = 1_000_000
_FEW_EMPTY_VALUES = 10
"""So few values without bytes per byte cost no more than numbers would."""


class _Facts(NamedTuple):
    """Facts about the values of a schema."""

    takes_bytes: bool
    depth: int = 1
    empty_values: int = 0
    """How many values without bytes one of them holds outside of arrays and maps."""
    repeated_values: int = 0
    """How many values without bytes each item of its arrays and maps holds."""


class AvroBounds:
    """Checks a schema, and says how its data may nest.

    Args:
        schema: A schema that fastavro has parsed.
        named: All named types of the schema and its imports.

    Raises:
        ValueError: The schema exceeds a bound.
    """

    def __init__(self, schema: Any, named: dict[str, Any]) -> None:
        self.contains_itself = False
        """Whether data may be nested as deeply as they are long."""
        self._named = dict(named)
        self._known: dict[str, _Facts] = {}
        self._open: dict[str, int] = {}
        """The records around the current type, with the choices around each of them."""
        self._choices = 0
        """How many unions, arrays and maps are around the current type."""
        self._level = 0
        if len(named) > _MOST_NAMED_TYPES:
            msg = f"it has {len(named)} named types, and {_MOST_NAMED_TYPES} are allowed"
            raise ValueError(msg)
        facts = self._look_at(schema)
        self.depth = facts.depth
        self._repeated_values = facts.repeated_values
        if self.contains_itself:
            self._repeated_values += facts.empty_values

    def may_nest_too_deep(self, size: int) -> bool:
        """Return whether data of this size could crash fastavro's compiled reader."""
        return self.contains_itself and size * self.depth > _MOST_CALLS

    def may_hold_too_many(self, size: int) -> bool:
        """Return whether data of this size could hold very many values that take no bytes."""
        values = self._repeated_values
        return values > _FEW_EMPTY_VALUES and values * size > _MOST_EMPTY_VALUES

    def _look_at(self, schema: Any) -> _Facts:
        self._level += 1
        facts = self._facts(schema)
        self._level -= 1
        if max(facts.depth, self._level) > _MOST_DEPTH:
            msg = f"its types are nested more than {_MOST_DEPTH} deep"
            raise ValueError(msg)
        if facts.empty_values + facts.repeated_values > _MOST_EMPTY_VALUES:
            msg = "a few bytes could hold more than a million values"
            raise ValueError(msg)
        return facts

    def _facts(self, schema: Any) -> _Facts:
        if self._level > _MOST_DEPTH:
            return _Facts(takes_bytes=True)  # refused by the caller
        if isinstance(schema, list):
            # A branch that is null takes the byte of its number.
            return self._chosen([member for member in schema if member != "null"])
        if isinstance(schema, str):
            return self._facts_of_name(schema)
        match schema["type"]:
            case "record" | "error":
                return self._facts_of_record(schema)
            case "fixed":
                takes_bytes = schema["size"] > 0
                self._known[schema["name"]] = _Facts(takes_bytes, 1, int(not takes_bytes))
                return self._known[schema["name"]]
            case "array":
                return self._repeated(schema["items"], is_array=True)
            case "map":
                return self._repeated(schema["values"], is_array=False)
            case inner:
                return self._look_at(inner)

    def _chosen(self, members: list[Any]) -> _Facts:
        """Return the facts of a union of these types."""
        self._choices += 1
        facts = [self._look_at(member) for member in members]
        self._choices -= 1
        return _Facts(
            takes_bytes=True,
            depth=1 + max((member.depth for member in facts), default=0),
            empty_values=max((member.empty_values for member in facts), default=0),
            repeated_values=max((member.repeated_values for member in facts), default=0),
        )

    def _repeated(self, item: Any, *, is_array: bool) -> _Facts:
        """Return the facts of an array or a map of these items."""
        self._choices += 1
        facts = self._look_at(item)
        self._choices -= 1
        if is_array and not facts.takes_bytes:
            msg = (
                "the items of an array take no bytes, so a few bytes could fill the memory. Let "
                "the items hold something, or write their number"
            )
            raise ValueError(msg)
        repeated = facts.empty_values + facts.repeated_values
        return _Facts(takes_bytes=True, depth=1 + facts.depth, repeated_values=repeated)

    def _facts_of_name(self, name: str) -> _Facts:
        if name in self._open:
            if self._open[name] == self._choices:
                msg = f"every {name} contains another one, so that none can end"
                raise ValueError(msg)
            self.contains_itself = True
            return _Facts(takes_bytes=True)
        if name not in self._known and name in self._named:
            return self._look_at(self._named[name])
        return self._known.get(name, _Facts(name != "null", 1, int(name == "null")))

    def _facts_of_record(self, schema: dict[str, Any]) -> _Facts:
        name = schema["name"]
        self._open[name] = self._choices
        fields = [self._look_at(field["type"]) for field in schema["fields"]]
        del self._open[name]
        takes_bytes = any(field.takes_bytes for field in fields)
        self._known[name] = _Facts(
            takes_bytes,
            1 + max((field.depth for field in fields), default=0),
            sum(field.empty_values for field in fields) + (not takes_bytes),
            sum(field.repeated_values for field in fields),
        )
        return self._known[name]


def check_schema_size(texts: list[str]) -> None:
    """Refuse a schema whose text, with its imports, is too long to be parsed quickly."""
    size = sum(map(len, texts))
    if size > _MOST_SCHEMA_BYTES:
        msg = f"its text has {size} characters, and {_MOST_SCHEMA_BYTES} are allowed"
        raise ValueError(msg)
