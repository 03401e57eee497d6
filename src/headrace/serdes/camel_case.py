"""Spells fields of dataclasses and TypedDicts in camelCase, which msgspec does for Structs only.

Works on plain dicts and lists, guided by the type they come from: fields are renamed, the keys of a
``dict[str, X]`` are data and stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect as shapes

Renaming: TypeAlias = Callable[[Any], Any]
"""Returns plain data with its fields renamed; data of another shape as it is."""


def camel_case_renamings(shape: shapes.Type) -> tuple[Renaming, Renaming] | None:
    """Return the renamings for writing and for reading; None if there are no fields to rename.

    Raises:
        ValueError: Two fields of one type have the same name in camelCase.
    """
    to_camel, to_snake = _Renamings(reading=False), _Renamings(reading=True)
    writing, reading = to_camel.of(shape), to_snake.of(shape)
    if writing is None or reading is None or not to_camel.found_fields:
        return None
    return writing, reading


_Within: TypeAlias = Renaming | None
_Fields: TypeAlias = dict[str, tuple[str, _Within]]
_Object: TypeAlias = shapes.DataclassType | shapes.TypedDictType | shapes.StructType


class _Renamings:
    """Makes the renaming of a shape out of those of its parts; None where nothing is renamed."""

    def __init__(self, *, reading: bool) -> None:
        self.found_fields = False
        self._reading = reading
        self._objects: dict[int, Renaming] = {}

    def of(self, shape: shapes.Type) -> _Within:
        match shape:
            case shapes.DataclassType() | shapes.TypedDictType():
                self.found_fields = True
                return self._object(shape)
            case shapes.StructType(array_like=False):
                return self._object(shape)
            case shapes.StructType() | shapes.NamedTupleType():
                tag = [shapes.AnyType()] if getattr(shape, "tag", None) is not None else []
                return self._array(_in_positions, [*tag, *(part.type for part in shape.fields)])
            case shapes.TupleType():
                return self._array(_in_positions, shape.item_types)
            case shapes.CollectionType():
                return self._array(_in_items, [shape.item_type])
            case shapes.DictType():
                return self._array(_in_values, [shape.value_type])
            case shapes.UnionType():
                return self._array(_in_each_way, shape.types)
            case shapes.Metadata():
                return self.of(shape.type)
            case _:
                return None

    def _object(self, shape: _Object) -> Renaming:
        known = self._objects.get(id(shape))
        if known is not None:
            return known
        fields: _Fields = {}
        if isinstance(shape, shapes.StructType):
            renaming = _in_struct(fields, shape)
        else:
            renaming = _in_fields(fields)
        # Known before its fields are, because a type may contain itself.
        self._objects[id(shape)] = renaming
        for part, name in zip(shape.fields, _names(shape), strict=True):
            own, other = (name, part.encode_name) if self._reading else (part.encode_name, name)
            fields[own] = (other, self.of(part.type))
        return renaming

    def _array(
        self, rename: Callable[[list[_Within]], Renaming], parts: Iterable[shapes.Type]
    ) -> _Within:
        within = [self.of(part) for part in parts]
        return rename(within) if any(within) else None


def _names(shape: _Object) -> Iterable[str]:
    """Return the names of fields in JSON: Structs have theirs, others get what a Struct would."""
    names = [part.encode_name for part in shape.fields]
    if isinstance(shape, shapes.StructType):
        return names
    return msgspec.defstruct(shape.cls.__name__, names, rename="camel").__struct_encode_fields__


def _renamed(within: _Within, value: Any) -> Any:
    return value if within is None else within(value)


def _in_fields(fields: _Fields) -> Renaming:
    def rename(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        renamed = {}
        for name, item in value.items():
            # Other fields are left out: one spelled as in Python is not the one that is meant.
            if name in fields:
                other, within = fields[name]
                renamed[other] = item if within is None else within(item)
        return renamed

    return rename


def _in_struct(fields: _Fields, shape: shapes.StructType) -> Renaming:
    def rename(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if shape.tag_field is not None and value.get(shape.tag_field) != shape.tag:
            return value
        return {
            name: _renamed(fields[name][1], item) if name in fields else item
            for name, item in value.items()
        }

    return rename


def _in_values(parts: list[_Within]) -> Renaming:
    def rename(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: _renamed(parts[0], item) for name, item in value.items()}

    return rename


def _in_items(parts: list[_Within]) -> Renaming:
    def rename(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [_renamed(parts[0], item) for item in value]

    return rename


def _in_positions(parts: list[_Within]) -> Renaming:
    def rename(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return [_renamed(within, item) for item, within in zip(value, parts, strict=False)]

    return rename


def _in_each_way(parts: list[_Within]) -> Renaming:
    def rename(value: Any) -> Any:
        for within in parts:
            value = _renamed(within, value)
        return value

    return rename
