"""Shipping: objects as bytes for other processes of Spark, classes of ``__main__`` included.

Importable objects are sent by their names. If workers cannot find the user's own modules, their
source is sent too. Objects of a script or a notebook are sent by value, with Spark's cloudpickle.
This module adds what cloudpickle omits or changes.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field
from functools import cached_property, lru_cache, partial
from pickletools import genops
from typing import Any, NewType, TypeAlias, get_type_hints

import msgspec
from msgspec import StructMeta
from msgspec.structs import FieldInfo
from pyspark import cloudpickle

from headrace.brokers.opening import open_log
from headrace.brokers.sessions import Broker
from headrace.errors import StreamsError, UnshippableError
from headrace.runtime.program import Program
from headrace.spark.masters import is_one_process
from headrace.spark.processes.user_modules import NoSourceError, modules_for, provide_modules

_OPTIONS = (
    "frozen",
    "eq",
    "order",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "array_like",
    "gc",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)
"""The options of a Struct, by the keywords of its class statement."""

_META = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "pattern",
    "min_length",
    "max_length",
    "tz",
    "title",
    "description",
    "examples",
    "extra_json_schema",
    "extra",
)
_FACTORY: Any = type(FieldInfo.__struct_defaults__[0])
_CACHED_FUNCTION = type(lru_cache(len))
_UNRESOLVED = "type_of_a_field_that_is_still_being_unpacked"

_FieldParts: TypeAlias = tuple[str, dict[str, Any]]
"""The name of a field of a Struct, and the arguments of `msgspec.field`."""
_Shape: TypeAlias = tuple[Any, ...]


class ShippingError(TypeError):
    """A part of the program cannot be recreated unchanged in another process."""

    def __init__(
        self, message: str, remedy: str = "Define it in a module of its own, and import it."
    ) -> None:
        self.remedy = remedy
        super().__init__(message)


def bytes_from_object(value: object) -> bytes:
    """Return an object as bytes.

    Raises `ShippingError` if other processes would get something else, and any error of pickling.
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    # Pickling the value collects the Structs, so the shapes come second.
    pickler.dump((value, pickler.shapes))  # type: ignore[no-untyped-call]  # PySpark's
    return file.getvalue()


def object_from_bytes(data: bytes) -> Any:
    """Return the object of `bytes_from_object`, in a process of the same program.

    Raises `ShippingError` if it is not as it was.
    """
    try:
        value, shapes = cloudpickle.loads(data)  # made by the driver, sent by Spark
    except Exception as error:
        msg = f"it cannot be unpickled: {type(error).__name__}: {error}"
        raise ShippingError(msg) from error
    for class_, shape in shapes.items():
        if _shape(class_) != shape:
            msg = f"Struct {class_.__name__!r} would lose options of its class statement"
            raise ShippingError(msg)
    return value


def modules_of(data: bytes) -> bytes:
    """Return the user's modules that `object_from_bytes` needs, for `provide_modules`.

    Raises `ShippingError` if one of them is compiled.
    """
    # The pickled data has the names of modules as texts, also of those that a function imports.
    texts = {argument for _, argument, _ in genops(data) if isinstance(argument, str)}
    try:
        return modules_for(texts)
    except NoSourceError as error:
        remedy = "Install it, in the Python of the workers too."
        raise ShippingError(str(error), remedy) from error


class _Pickler(cloudpickle.CloudPickler):
    """Cloudpickle that keeps the classes into which msgspec decodes JSON."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]  # PySpark's
        self.shapes: dict[type, _Shape] = {}

    def reducer_override(self, obj: Any) -> Any:
        if obj is MISSING:  # Dataclasses compare by identity to tell required fields.
            return "MISSING"
        if isinstance(obj, msgspec.Meta):
            options = {name: getattr(obj, name) for name in _META}
            return partial(msgspec.Meta, **{k: v for k, v in options.items() if v is not None}), ()
        if type(obj) is cached_property:  # In Python 3.11 it holds a lock.
            return cached_property, (obj.func,), {"attrname": obj.attrname}
        reduced = super().reducer_override(obj)  # type: ignore[no-untyped-call]  # PySpark's
        if isinstance(obj, type):
            by_value = isinstance(reduced, tuple) and len(reduced) == 6
            return self._reduced_class(obj, *reduced) if by_value else reduced
        if reduced is NotImplemented and getattr(obj, "__module__", None) == "__main__":
            return self._reduced_object(obj)
        return reduced

    def _reduced_object(self, obj: Any) -> Any:
        """Refuse an object that is pickled by name: a worker has another ``__main__``."""
        if isinstance(obj, NewType):
            return NewType, (obj.__name__, obj.__supertype__)
        if isinstance(obj, _CACHED_FUNCTION):
            return _cached_function, (obj.__wrapped__, obj.cache_parameters())
        if type(obj) in self.dispatch_table:
            return NotImplemented
        reduced = obj.__reduce_ex__(self.proto)
        if isinstance(reduced, str):
            msg = f"{reduced!r}, of type {type(obj).__name__}, is only known in this process"
            raise ShippingError(msg)
        return reduced

    def _reduced_class(
        self, class_: type, make: Any, arguments: Any, states: Any, *rest: Any
    ) -> tuple[Any, ...]:
        state, slots = states
        state.pop("__msgspec_cache__", None)
        if annotations := _resolved_annotations(class_):
            state["__annotations__"] = annotations
        # Without the number that cloudpickle knows a class by, unpacking makes a new one here too,
        # and leaves the program's own alone.
        *arguments, _number, extra = arguments
        if isinstance(class_, StructMeta):
            arguments = self._struct_arguments(class_, arguments, state)
        elif dict in class_.__bases__ and hasattr(class_, "__total__"):
            # The metaclass of TypedDicts refuses `dict`, which all of them have as their base.
            _metaclass, name, _bases, namespace = arguments
            make_class = partial(type.__new__, type(class_))
            arguments = [make_class, name, class_.__bases__, namespace]
        return make, (*arguments, None, extra), (state, slots), *rest

    def _struct_arguments(
        self, class_: Any, arguments: list[Any], state: dict[str, Any]
    ) -> list[Any]:
        self.shapes[class_] = _shape(class_)
        own = state.get("__annotations__", {})
        fields = [field for field in _fields(class_) if field[0] in own]
        options = {name: getattr(class_.__struct_config__, name) for name in _OPTIONS}
        options["tag"] = False if options["tag"] is None else options["tag"]
        options["kw_only"] = any(name not in class_.__match_args__ for name, *_ in fields)
        metaclass, name, bases, namespace = arguments
        if hasattr(class_, "__post_init__"):
            namespace = {**namespace, "__post_init__": _post_init}
            state["__post_init__"] = class_.__post_init__
        return [partial(_struct, metaclass, options, fields), name, bases, namespace]


def _fields(class_: Any) -> Iterator[_FieldParts]:
    names, defaults = class_.__struct_fields__, class_.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
    for name, encode_name, default in zip(
        names, class_.__struct_encode_fields__, defaults, strict=True
    ):
        if isinstance(default, _FACTORY):
            yield name, {"default_factory": default.factory, "name": encode_name}
        else:
            yield name, {"default": default, "name": encode_name}


def _struct(
    metaclass: Callable[..., type],
    options: dict[str, Any],
    fields: list[_FieldParts],
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
) -> type:
    """Return a Struct with its fields. Unpickling sets their types and its methods later."""
    for name_of_field, parts in fields:
        namespace[name_of_field] = msgspec.field(**parts)
    namespace["__annotations__"] = {given[0]: _UNRESOLVED for given in fields}
    return metaclass(name, bases, namespace, **options)


def _post_init(struct: Any) -> None:
    """Call the user's method. A Struct reads it when its class is made, before it is set."""
    type(struct).__post_init__(struct)


def _shape(class_: Any) -> _Shape:
    """Return the facts that decide how a Struct is encoded, without the types of its fields."""
    return (
        class_.__struct_fields__,
        class_.__struct_encode_fields__,
        class_.__match_args__,
        [default is msgspec.NODEFAULT for default in class_.__struct_defaults__],
        [getattr(class_.__struct_config__, name) for name in _OPTIONS],
    )


def _resolved_annotations(class_: type) -> dict[str, Any]:
    """Return the annotations of a class, as types where they are text that names types.

    Text is looked up in the module of the class, and ``__main__`` is another one in a worker.
    """
    module = sys.modules.get(class_.__module__)
    names = {} if module is None else vars(module)
    resolved = {}
    for name, annotation in inspect.get_annotations(class_).items():
        holder = type(class_.__name__, (), {"__annotations__": {name: annotation}})
        try:
            hints = get_type_hints(holder, dict(vars(class_)), names, include_extras=True)
        except Exception:  # whatever evaluating it raises: the driver cannot resolve it either
            hints = {name: annotation}
        resolved[name] = hints[name]
    return resolved


def _cached_function(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


@dataclass(frozen=True)
class ShippedProgram:
    """A program as bytes, which a process unpacks when it sees it for the first time."""

    data: bytes = field(repr=False)
    digest: str
    modules: bytes = field(default=b"", repr=False)
    """The user's own modules, for processes that cannot find them."""

    @classmethod
    def of(cls, program: Program) -> ShippedProgram:
        """Return a program ready to be sent.

        Raises `UnshippableError` if something in it belongs to this process (a lock, a file, a
        connection), or workers would get something else.
        """
        with_modules = not is_one_process(program.config)
        try:
            data = bytes_from_object(program)
            modules = modules_of(data) if with_modules else b""
            shipped = cls(data, hashlib.sha256(data + modules).hexdigest(), modules)
            _made_here.add(shipped.digest)
            _unpacked(shipped)
        except Exception as error:
            raise _unshippable(program, error, with_modules=with_modules) from error
        return shipped

    def program(self) -> Program:
        """Return the program; raise `UnshippableError` if this process lacks something it needs."""
        try:
            return _unpacked(self)
        except ShippingError as error:
            raise UnshippableError(
                None,
                origin=None,
                reason=str(error),
                remedy="Give them what it needs: the packages that are installed here, "
                "and the files that your modules read.",
            ) from error

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShippedProgram) and self.digest == other.digest


_made_here: set[str] = set()
"""The digests of the programs that this process has made: it has their modules."""


@lru_cache(maxsize=4)
def _unpacked(shipped: ShippedProgram) -> Program:
    if shipped.digest not in _made_here:
        provide_modules(shipped.modules)
    program = object_from_bytes(shipped.data)
    assert isinstance(program, Program)
    return program


def _unshippable(program: Program, error: Exception, *, with_modules: bool) -> StreamsError:
    """Return the error that names the step that cannot be sent."""
    for planned in program.plan.subtopologies:
        for node in planned.nodes.values():
            try:
                data = bytes_from_object(node)
                object_from_bytes(data)
                if with_modules:
                    modules_of(data)
            except Exception as own:  # whatever pickling it raises
                return _refusal(node.name, node.origin, own)
    return _refusal(None, None, error)


def _refusal(node: str | None, origin: str | None, error: Exception) -> StreamsError:
    if isinstance(error, ShippingError):
        return UnshippableError(node, origin=origin, reason=str(error), remedy=error.remedy)
    reason = f"{type(error).__name__}: {error}".rstrip(".")
    return UnshippableError(node, origin=origin, reason=reason)


@lru_cache(maxsize=4)
def worker_log(shipped: ShippedProgram) -> Broker:
    """Return the log of a program, kept open by the worker that reads or writes it."""
    return open_log(shipped.program().config)
