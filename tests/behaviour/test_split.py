"""Behaviour of `split` and its branches."""

from __future__ import annotations

import pytest

from headrace import KStream, ProcessingError, StreamsBuilder, TopologyError
from headrace.testing import DriverFactory


def test_a_record_goes_down_the_first_branch_that_takes_it(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    branches = (
        builder.stream("in", key=str, value=int)
        .split(name="size-")
        .branch(lambda _, value: value > 10, "large")
        .branch(lambda _, value: value > 5, "middle")
        .default_branch("small")
    )
    for name, branch in branches.items():
        branch.to(name)
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_value_list([1, 6, 11, 7])

    read = {
        name: driver.create_output_topic(name).read_values_to_list()
        for name in ("size-large", "size-middle", "size-small")
    }
    assert read == {"size-large": [11], "size-middle": [6, 7], "size-small": [1]}


def test_without_a_default_branch_other_records_are_left_out_and_not_counted(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", key=str, value=int).split()
    split.branch(lambda _, value: value > 5, "large").no_default_branch()["large"].to("out")
    driver = topology_driver(builder.build())

    driver.create_input_topic("in").pipe_value_list([1, 6])

    dropped = {str(name): count for name, count in driver.metrics().items()}
    assert driver.create_output_topic("out").read_values_to_list() == [6]
    assert dropped["dropped-records-total"] == 0


def test_branches_are_numbered_where_they_have_no_name() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int)

    branches = stream.split().branch(lambda *_: True).branch(lambda *_: True).default_branch()

    prefix = "KSTREAM-BRANCH-0000000001"
    assert list(branches) == [f"{prefix}1", f"{prefix}2", f"{prefix}0"]
    assert len(branches) == 3
    assert repr(branches) == f"Branches(['{prefix}1', '{prefix}2', '{prefix}0'])"


def test_a_branch_is_found_by_its_own_name_and_by_kafkas() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int)

    branches = stream.split(name="p-").branch(lambda *_: True, "a").no_default_branch()

    assert branches["a"] is branches["p-a"]


def test_an_unknown_branch_lists_those_there_are() -> None:
    stream = StreamsBuilder().stream("in", key=str, value=int)
    branches = stream.split(name="p-").branch(lambda *_: True, "a").no_default_branch()

    with pytest.raises(KeyError, match=r"There is no branch 'b', only \['p-a'\]"):
        branches["b"]


def test_then_replaces_a_branch_or_takes_it_out() -> None:
    ended: list[KStream[str, int]] = []
    stream = StreamsBuilder().stream("in", key=str, value=int)

    branches = (
        stream.split(name="p-")
        .branch(lambda *_: True, "kept", then=lambda branch: branch.filter(lambda *_: True))
        .default_branch("ended", then=ended.append)
    )

    assert list(branches) == ["p-kept"]
    assert branches["kept"].node == "KSTREAM-FILTER-0000000003"
    assert [branch.node for branch in ended] == ["p-ended"]


def test_a_branch_declared_after_the_end_is_refused_and_changes_nothing(
    topology_driver: DriverFactory,
) -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", key=str, value=int).split(name="p-")
    split.branch(lambda _, value: value > 5, "a").default_branch("rest")["rest"].to("out")

    with pytest.raises(TopologyError, match="The split 'p-' already has its branches"):
        split.branch(lambda *_: True, "late")

    driver = topology_driver(builder.build())
    driver.create_input_topic("in").pipe_value_list([1, 6])
    assert driver.create_output_topic("out").read_values_to_list() == [1]


def test_a_predicate_that_fails_is_an_error_of_the_split(topology_driver: DriverFactory) -> None:
    builder = StreamsBuilder()
    split = builder.stream("in", key=str, value=int).split(name="p-")
    split.branch(lambda _, value: 1 // value > 0, "a").no_default_branch()["a"].to("out")
    driver = topology_driver(builder.build())

    with pytest.raises(ProcessingError, match="Step 'p-' failed"):
        driver.create_input_topic("in").pipe_input("a", 0)
