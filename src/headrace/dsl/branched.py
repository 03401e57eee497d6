"""Divides a stream: BranchedKStream, and the branches it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Generic

from headrace.dsl.functions import checked_arity
from headrace.errors import TopologyError
from headrace.processors.branch import Branch, PassThrough
from headrace.records import K, V
from headrace.state.names import checked_name
from headrace.topology.nodes import ProcessorNode

if TYPE_CHECKING:
    from headrace.dsl.kstream import KStream


class Branches(Mapping[str, "KStream[K, V]"], Generic[K, V]):
    """The branches of a split, in the order of their declaration.

    Its keys are the names that Kafka gives them: the prefix, then the branch's own name or number.
    ``branches[name]`` also accepts the branch's own name alone.
    """

    def __init__(self, branches: Mapping[str, KStream[K, V]], short: Mapping[str, str]) -> None:
        self._branches = dict(branches)
        self._short = dict(short)

    def __getitem__(self, name: str) -> KStream[K, V]:
        full = name if name in self._branches else self._short.get(name)
        if full is None or full not in self._branches:
            msg = f"There is no branch {name!r}, only {list(self._branches)}."
            raise KeyError(msg)
        return self._branches[full]

    def __iter__(self) -> Iterator[str]:
        return iter(self._branches)

    def __len__(self) -> int:
        return len(self._branches)

    def __repr__(self) -> str:
        return f"Branches({list(self._branches)})"


class BranchedKStream(Generic[K, V]):
    """A stream that you divide: declare branches, then end with or without a default one."""

    def __init__(self, stream: KStream[K, V], name: str | None) -> None:
        self._stream = stream
        self._splitter = stream.graph.name("KSTREAM-BRANCH-", name)
        stream.graph.add(
            ProcessorNode(name=self._splitter, parents=(stream.node,), operation=Branch((), ()))
        )
        self._branches: dict[str, KStream[K, V]] = {}
        self._short: dict[str, str] = {}
        self._ended = False

    def branch(
        self,
        predicate: Callable[[K, V], bool],
        name: str | None = None,
        *,
        then: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Declare a branch for the records that match no earlier branch.

        Args:
            predicate: A record matches if ``predicate(key, value)`` is true.
            name: Name of the branch, after the prefix; its number if left out.
            then: Replaces the branch in the result by ``then(branch)``, or leaves it out if that
                is None.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> branches = orders.split().branch(lambda city, amount: amount >= 10, "high")
            >>> branches.no_default_branch()["high"].foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            Graz 27
        """
        checked_arity(predicate, 2, step=self._splitter, may_yield=False)
        self._add_branch(predicate, name, then)
        return self

    def default_branch(
        self,
        name: str | None = None,
        *,
        then: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> Branches[K, V]:
        """Declare the branch for all other records, and return the branches.

        Example:
            >>> from headrace import StreamsBuilder
            >>> from headrace.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=str, value=int)
            >>> split = orders.split(name="is-").branch(lambda city, amount: amount >= 10, "high")
            >>> branches = split.default_branch("low")
            >>> list(branches)
            ['is-high', 'is-low']
            >>> branches["low"].foreach(print)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("orders").pipe_key_value_list([("Graz", 27), ("Linz", 3)])
            Linz 3
        """
        self._add_branch(None, name, then)
        return self._end()

    def no_default_branch(self) -> Branches[K, V]:
        """Drop the records that match no branch, and return the branches.

        Example:
            >>> from headrace import StreamsBuilder
            >>> orders = StreamsBuilder().stream("orders", key=str, value=int)
            >>> split = orders.split(name="is-").branch(lambda city, amount: amount >= 10, "high")
            >>> split.no_default_branch()
            Branches(['is-high'])
        """
        return self._end()

    def _add_branch(
        self,
        predicate: Callable[[K, V], bool] | None,
        name: str | None,
        then: Callable[[KStream[K, V]], KStream[K, V] | None] | None,
    ) -> None:
        if self._ended:
            msg = f"The split {self._splitter!r} already has its branches. Declare them before."
            raise TopologyError(msg)
        graph, operation = self._stream.graph, self._operation()
        predicates = (
            operation.predicates if predicate is None else (*operation.predicates, predicate)
        )
        own = name if name is not None else "0" if predicate is None else str(len(predicates))
        node = checked_name(self._splitter + own, what="branch")
        graph.burn_index()
        graph.add(ProcessorNode(name=node, parents=(self._splitter,), operation=PassThrough()))
        self._update(Branch(predicates, (*operation.branches, node)))
        stream = replace(self._stream, node=node)
        branch = stream if then is None else then(stream)
        if branch is not None:
            self._branches[node] = branch
            self._short[own] = node

    def _end(self) -> Branches[K, V]:
        self._ended = True
        return Branches(self._branches, self._short)

    def _operation(self) -> Branch:
        node = self._stream.graph.graph.nodes[self._splitter]
        assert isinstance(node, ProcessorNode), "added by the constructor"
        assert isinstance(node.operation, Branch), "added by the constructor"
        return node.operation

    def _update(self, operation: Branch) -> None:
        node = self._stream.graph.graph.nodes[self._splitter]
        assert isinstance(node, ProcessorNode), "added by the constructor"
        self._stream.graph.replace_node(replace(node, operation=operation))
