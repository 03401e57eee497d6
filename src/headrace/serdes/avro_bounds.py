"""What a few bytes of Avro can do to their reader: fill its memory, or end its process."""

from __future__ import annotations

from typing import Any

MOST_NESTED_BYTES = 500
"""How much data of a schema that contains itself fastavro's compiled reader may get. Each byte may
be one call deeper, and some thousand calls are more than the stack of a process holds."""


class AvroBounds:
    """What the data of one schema may do.

    Args:
        schema: A schema that fastavro has parsed.
        named: The schemas that it imports, by name.
    """

    def __init__(self, schema: Any, named: dict[str, Any]) -> None:
        self.contains_itself = False
        """Whether data may be nested as deeply as they are long."""
        self.has_empty_items = False
        """Whether there are arrays whose items take no bytes, so that a count alone makes them."""
        self._named = dict(named)
        self._takes_bytes: dict[str, bool] = {}
        self._open: set[str] = set()
        self._look_at(schema)

    def _look_at(self, schema: Any) -> bool:
        """Return whether every value of a schema takes bytes."""
        if isinstance(schema, list):
            for member in schema:
                self._look_at(member)
            return True
        if isinstance(schema, str):
            return self._look_at_name(schema)
        match schema["type"]:
            case "record" | "error":
                return self._look_at_record(schema)
            case "fixed":
                self._takes_bytes[schema["name"]] = schema["size"] > 0
                return bool(schema["size"])
            case "array":
                self.has_empty_items |= not self._look_at(schema["items"])
            case "map":
                self._look_at(schema["values"])
            case inner:
                return self._look_at(inner)
        return True

    def _look_at_name(self, name: str) -> bool:
        if name in self._open:
            self.contains_itself = True
            return True
        if name not in self._takes_bytes and name in self._named:
            return self._look_at(self._named[name])
        return self._takes_bytes.get(name, name != "null")

    def _look_at_record(self, schema: dict[str, Any]) -> bool:
        name = schema["name"]
        self._open.add(name)
        takes_bytes = [self._look_at(field["type"]) for field in schema["fields"]]
        self._open.remove(name)
        self._takes_bytes[name] = any(takes_bytes)
        return self._takes_bytes[name]
