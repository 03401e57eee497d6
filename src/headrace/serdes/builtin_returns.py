"""The return types of Python's builtin functions and of the methods of its builtin types."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

_TEXT = (
    "capitalize casefold center expandtabs format format_map join ljust lower lstrip removeprefix "
    "removesuffix replace rjust rstrip strip swapcase title translate upper zfill"
)
_POSITIONS = "count find index rfind rindex"
_TESTS = (
    "endswith startswith isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric "
    "isprintable isspace istitle isupper"
)
_LISTS = "split rsplit splitlines"

_RETURNS: Mapping[tuple[object, type], str] = {
    (builtins, int): "len ord",
    (builtins, str): "ascii bin chr format hex oct repr",
    (builtins, bool): "all any callable isinstance issubclass",
    (str, str): _TEXT,
    (str, int): _POSITIONS,
    (str, bool): _TESTS,
    (str, bytes): "encode",
    (str, list[str]): _LISTS,  # an alias serves as a type
    (bytes, bytes): _TEXT,
    (bytes, int): _POSITIONS,
    (bytes, bool): _TESTS,
    (bytes, str): "decode hex",
    (int, int): "bit_length bit_count conjugate from_bytes",
    (int, bytes): "to_bytes",
    (float, bool): "is_integer",
    (float, str): "hex",
    (float, float): "conjugate fromhex",
}
_BY_OWNER: Mapping[tuple[object, str], Any] = {
    (owner, name): type_ for (owner, type_), names in _RETURNS.items() for name in names.split()
}


def builtin_return(function: Callable[..., Any]) -> Any:
    """Return the type that a builtin function or method always returns; Any if it varies."""
    owner: object
    if isinstance(function, MethodDescriptorType):
        owner = function.__objclass__
    elif isinstance(function, BuiltinFunctionType):
        owner = function.__self__
        if owner is not builtins and not isinstance(owner, type):
            owner = type(owner)
    else:
        return Any
    return _BY_OWNER.get((owner, function.__name__), Any)
