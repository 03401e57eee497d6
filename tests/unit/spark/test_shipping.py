"""Objects shipped to other processes: types of ``__main__`` arrive unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from headrace.serdes import JsonSerde
from headrace.spark.shipping import ShippingError, bytes_from_object, object_from_bytes
from tests.spark.every_kind import KINDS

Answers = dict[str, list[str]]

PROGRAM = Path(__file__).parents[2] / "spark" / "every_kind.py"
FUTURE = "from __future__ import annotations\n"
RECEIVER = """
import sys
from pathlib import Path
import msgspec
from headrace.spark.shipping import object_from_bytes
answers = object_from_bytes(Path(sys.argv[1]).read_bytes())
print(msgspec.json.encode(answers()).decode())
"""


NOTEBOOK = """
import sys
exec(compile(open(sys.argv.pop(1)).read(), "<cell>", "exec"))
"""


@pytest.fixture(scope="module", params=["script", "script with types as text", "notebook"])
def reported(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Answers, Answers]:
    """The answers of a program, and those of the process that it was shipped to."""
    folder = tmp_path_factory.mktemp("main")
    source = PROGRAM.read_text()
    assert FUTURE in source
    script, data = folder / "script.py", folder / "data"
    script.write_text(source.replace(FUTURE, "") if request.param == "script" else source)
    program = ["-c", NOTEBOOK] if request.param == "notebook" else []
    here = answers_of(*program, str(script), "ship", str(data))
    return here, answers_of("-c", RECEIVER, str(data))


def answers_of(*arguments: str) -> Answers:
    done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=Answers)


@pytest.mark.tier("test")  # starts a process
@pytest.mark.parametrize("kind", KINDS)
def test_a_type_of_main_is_the_same_in_another_process(
    reported: tuple[Answers, Answers], kind: str
) -> None:
    here, there = reported

    assert there[kind] == here[kind]
    assert any(answer[0] in '{["' for answer in here[kind]), "some JSON fits"


def test_unpacking_leaves_the_classes_of_this_process_alone() -> None:
    class Order(Struct):
        n: int

        def double(self) -> int:
            return self.n * 2

    double, annotations = Order.double, dict(Order.__annotations__)

    again: Any = object_from_bytes(bytes_from_object(Order))

    assert again is not Order
    assert again(4).double() == 8
    assert (Order.double, Order.__annotations__) == (double, annotations)


def test_a_struct_that_would_change_is_refused() -> None:
    class Numbering(msgspec.StructMeta):
        def __new__(
            cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
        ) -> Any:
            options["tag"] = options.get("tag", 0) + 1
            return super().__new__(cls, name, bases, namespace, **options)

    class Order(Struct, metaclass=Numbering):
        n: int

    data = bytes_from_object([Order])

    with pytest.raises(ShippingError, match=r"^Struct 'Order' would lose options of its class"):
        object_from_bytes(data)


def test_an_object_known_only_by_its_name_in_main_is_refused() -> None:
    class Unknown:
        def __reduce__(self) -> str:
            return "UNKNOWN"

    Unknown.__module__ = "__main__"

    with pytest.raises(ShippingError, match=r"^'UNKNOWN', of type Unknown, is only known in this"):
        bytes_from_object([Unknown()])


def test_a_class_whose_method_needs_its_own_serde_is_refused() -> None:
    class Order(Struct):
        n: int

        def data(self) -> bytes:
            return serde.serialize(self)

    serde = JsonSerde(Order)

    with pytest.raises(ShippingError, match="still_being_unpacked"):
        object_from_bytes(bytes_from_object(Order))
