"""Lists the examples, in the order in which a reader learns from them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from headrace.errors import StreamsError

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Example:
    """An application of the documents that teach Kafka Streams."""

    name: str
    summary: str
    """Its purpose, in one line."""
    document: str
    """The document that it comes from, and the lines there."""
    has_topology: bool = True
    """Whether it has an ``app.py``; otherwise it has a ``main.py``."""
    instances: int = 0
    """How many instances answer queries in the document, for ``--instances``."""
    variants: tuple[str, ...] = ()
    """The names of its other programs, for ``--variant``."""

    @property
    def options(self) -> str:
        """The options that show more of it."""
        options = [f"--instances {self.instances}"] if self.instances else []
        options += [f"--variant {' | '.join(self.variants)}"] if self.variants else []
        return "; ".join(options)

    @property
    def package(self) -> str:
        """The package that holds it."""
        return f"headrace.examples.{self.name.replace('-', '_')}"

    @property
    def folder(self) -> Path:
        """The folder that holds it."""
        return _FOLDER / self.name.replace("-", "_")

    @property
    def program(self) -> Path:
        """The file of its program."""
        return self.folder / ("app.py" if self.has_topology else "main.py")

    def module(self, name: str) -> Any:
        """Return one of its modules: ``app``, ``main``, ``model`` or ``feed``."""
        return import_module(f"{self.package}.{name}")


_PATH = (
    Example("greetings", "Filter, map and merge greetings; each kind of error.", "003:102"),
    Example(
        "words",
        "Tables, aggregates and all ten joins, on words.",
        "003:343",
        variants=(
            *("table", "global-table"),
            *("stream-table", "stream-global-table", "table-table", "stream-stream"),
        ),
    ),
    Example("reprocess", "Count words again: as a batch, and as a second version.", "001:188"),
    Example("windows", "Tumbling, hopping, sliding and session windows, and grace.", "003:733"),
    Example(
        "orders",
        "Orders and revenue of stores, in total and in windows, joined with addresses.",
        "003:204",
        instances=2,
        variants=("document",),
    ),
    Example(
        "captcha",
        "Ask a browser for a captcha after five actions.",
        "002:574",
        variants=("global-table", "wall-clock"),
    ),
    Example(
        "product-views",
        "Count views with the Processor API; alert by e-mail.",
        "002:429",
        instances=1,
        variants=("alert",),
    ),
    Example(
        "stock-trades", "The average price of trades in hopping windows.", "004:131", instances=2
    ),
    Example(
        "music", "Charts of songs: play counts and the top five per genre.", "004:517", instances=2
    ),
    Example("connections", "Spread connections over the nodes that are alive.", "000:121"),
    Example("exactly-once", "Crash in the middle of a batch: count the duplicates.", "003:939"),
    Example("instances", "Ask three instances, and end one of them.", "004:277"),
)
"""The learning path."""

_OTHERS = (
    Example("sms-parts", "Put the parts of text messages together.", "000:56", variants=("slide",)),
    Example("send-responses", "Match messages with the responses of a provider.", "000:211"),
    Example("delivery-reports", "Match sent messages with their delivery reports.", "000:258"),
    Example("user-views", "Count the views of each user.", "001:48", instances=1),
    Example("intermediate-topic", "Spread a slow step over more partitions.", "002:726"),
    Example("movies", "The running average of ratings, with titles.", "004:525", instances=2),
    Example(
        "clients",
        "A producer with callbacks, and a group of consumers.",
        "002:68",
        has_topology=False,
    ),
    Example("log-appender", "Send the log of a program to a topic.", "002:116", has_topology=False),
)


def learning_path() -> list[str]:
    """Return the names of the examples to read one after the other."""
    return [each.name for each in _PATH if each.program.exists()]


def examples() -> list[Example]:
    """Return the examples, those of the learning path first."""
    return [each for each in (*_PATH, *_OTHERS) if each.program.exists()]


def find_example(name: str) -> Example:
    """Return an example by its name.

    Raises:
        StreamsError: There is none of that name.
    """
    for each in examples():
        if each.name == name:
            return each
    names = ", ".join(each.name for each in examples())
    msg = f"There is no example {name!r}. There are {names}."
    raise StreamsError(msg)
