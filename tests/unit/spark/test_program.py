"""The program that is sent to workers: it fits, or the step that does not is named."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamsBuilder, StreamsConfig, Topology, UnshippableError
from headrace.spark.planning.layout import new_layout, task_counts
from headrace.spark.planning.plan import plan_of
from headrace.spark.program import Program, ShippedProgram, make_program, worker_log


def program_of(topology: Topology, state_dir: Path, **counts: int) -> Program:
    config = StreamsConfig(application_id="app", state_dir=state_dir)
    plan = plan_of(topology, config)
    layout = new_layout(plan, *task_counts(plan, lambda _topic: 2), shuffle_partitions=2)
    return make_program(
        plan, config, layout, partition_counts=counts, run_directory="run", generation=0
    )


def topology_with(function: Any, name: str | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter(function, name=name).to("out")
    return builder.build()


def test_a_program_is_unpacked_once_and_runs_as_before(tmp_path: Path) -> None:
    least = 3
    sent = ShippedProgram.of(program_of(topology_with(lambda _k, v: v > least), tmp_path))
    again = ShippedProgram(sent.data, sent.digest)

    program = sent.program()

    assert again.program() is program
    assert again == sent
    assert sent != "something else"
    assert program.plan.application_id == "app"


def test_a_function_that_holds_a_lock_is_named_with_its_line(tmp_path: Path) -> None:
    lock = threading.Lock()
    program = program_of(topology_with(lambda _k, _v: lock.locked(), "guarded"), tmp_path)

    with pytest.raises(UnshippableError) as caught:
        ShippedProgram.of(program)

    line = test_a_function_that_holds_a_lock_is_named_with_its_line.__code__.co_firstlineno + 2
    made_at = topology_with.__code__.co_firstlineno + 2
    assert line != made_at
    assert caught.value.node == "guarded"
    assert str(caught.value).startswith(
        f"Step 'guarded' (test_program.py:{made_at}) cannot be sent to Spark's workers: "
        "TypeError: cannot pickle '_thread.lock' object. "
    )
    assert str(caught.value).endswith(
        "Make locks, files and connections inside the function or in `init`, not around it."
    )


def test_what_would_differ_in_a_worker_is_refused_with_its_step(tmp_path: Path) -> None:
    class Unknown:
        def __reduce__(self) -> str:
            return "UNKNOWN"

    Unknown.__module__ = "__main__"
    unknown = Unknown()
    program = program_of(topology_with(lambda _k, v: v is unknown, "puzzled"), tmp_path)

    with pytest.raises(UnshippableError) as caught:
        ShippedProgram.of(program)

    made_at = topology_with.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        f"Step 'puzzled' (test_program.py:{made_at}) cannot be sent to Spark's workers: "
        "'UNKNOWN', of type Unknown, is only known in this process. "
        "Define it in a module of its own, and import it."
    )


def test_a_step_that_cannot_be_unpacked_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    class Brittle:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    brittle = Brittle()
    program = program_of(topology_with(lambda _k, v: v is brittle, "brittle"), tmp_path)

    with pytest.raises(UnshippableError, match=r"^Step 'brittle' .* cannot be made anew: Value"):
        ShippedProgram.of(program)


def test_what_is_no_step_s_fault_is_the_application_s(tmp_path: Path) -> None:
    program = program_of(topology_with(lambda _k, _v: True), tmp_path)
    lock: Any = threading.Lock()
    object.__setattr__(program, "partition_counts", {"out": lock})

    with pytest.raises(UnshippableError, match=r"^The application cannot be sent") as caught:
        ShippedProgram.of(program)

    assert caught.value.node is None


def test_a_task_knows_the_partitions_of_topics_and_looks_up_the_rest(tmp_path: Path) -> None:
    shipped = ShippedProgram.of(program_of(topology_with(lambda _k, _v: True), tmp_path, out=3))
    log = worker_log(shipped)
    log.create_topic("chosen", partitions=5)

    partitions_of = shipped.program().partitions_of(lambda: worker_log(shipped))

    assert partitions_of("out") == 3
    assert partitions_of("chosen") == 5
    assert worker_log(shipped) is log


def test_rows_for_later_stages_travel_with_a_carrier_of_their_partition(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.group_by(lambda _k, v: str(v), key=str).count().to_stream().to("out")
    program = program_of(builder.build(), tmp_path)

    direct = program.route(1, 5, b"blob", next_stage=1)
    passing = program.route(2, 5, b"blob", next_stage=1)

    assert direct == (5, 1, 5, b"blob")
    assert passing[1:] == (2, 5, b"blob")
    assert passing[0] in program.carriers
