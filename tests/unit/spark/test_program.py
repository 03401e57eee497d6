"""The program that is sent to workers: it fits, or the step that does not is named."""

from __future__ import annotations

import importlib
import py_compile
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace import StreamsBuilder, StreamsConfig, Topology, UnshippableError
from headrace.runtime.batches import Batch
from headrace.runtime.checkpoint.layout import new_layout
from headrace.runtime.exchange.grouping_keys import shuffle_partition
from headrace.runtime.exchange.packing import Payload, pack
from headrace.runtime.plan import plan_topology
from headrace.runtime.planning.task_counts import task_counts
from headrace.runtime.program import Program, make_program
from headrace.spark.shipping import ShippedProgram, worker_log


def program_of(
    topology: Topology, state_dir: Path, master: str = "local[2]", **counts: int
) -> Program:
    spark = {"spark.master": master}
    config = StreamsConfig(application_id="app", state_dir=state_dir, spark=spark)
    plan = plan_topology(topology, config)
    layout = new_layout(plan, *task_counts(plan, lambda _topic: 2), shuffle_partitions=2)
    return make_program(
        plan, config, layout, partition_counts=counts, run_directory="run", leader_epoch=0
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


def test_an_object_that_would_differ_in_a_worker_is_refused_with_its_step(tmp_path: Path) -> None:
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

    with pytest.raises(UnshippableError, match=r"^Step 'brittle' .* cannot be unpickled: Value"):
        ShippedProgram.of(program)


def test_an_error_outside_all_steps_names_the_application(tmp_path: Path) -> None:
    program = program_of(topology_with(lambda _k, _v: True), tmp_path)
    lock: Any = threading.Lock()
    object.__setattr__(program, "partition_counts", {"out": lock})

    with pytest.raises(UnshippableError, match=r"^The application cannot be sent") as caught:
        ShippedProgram.of(program)

    assert caught.value.node is None


@pytest.fixture
def is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of a module that only this process finds."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_small.py").write_text("def is_small(_key, value):\n    return value < 9\n")
    yield importlib.import_module("mine_small").is_small
    for name in ("mine_small", "mine_fast"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,4]"])
def test_workers_with_the_path_of_the_driver_get_no_modules(
    tmp_path: Path, is_small: Any, master: str
) -> None:
    shipped = ShippedProgram.of(program_of(topology_with(is_small), tmp_path, master))

    assert shipped.modules == b""


@pytest.mark.tier("test")
@pytest.mark.parametrize(
    "master",
    [
        "spark://host:7077",
        pytest.param("yarn", marks=pytest.mark.nightly("cluster")),
        pytest.param("local-cluster[1,1,1024]", marks=pytest.mark.nightly("cluster")),
    ],
)
def test_workers_of_a_cluster_get_the_user_s_modules(
    tmp_path: Path, is_small: Any, master: str
) -> None:
    path = list(sys.meta_path)

    shipped = ShippedProgram.of(program_of(topology_with(is_small), tmp_path, master))

    assert shipped.modules != b""
    assert shipped != ShippedProgram.of(
        program_of(topology_with(lambda _k, _v: True), tmp_path, master)
    )
    assert sys.meta_path == path, "the driver imports as before"


def test_a_step_whose_module_is_compiled_is_refused_on_a_cluster(
    tmp_path: Path, is_small: Any
) -> None:
    py_compile.compile(str(tmp_path / "mine_small.py"), str(tmp_path / "mine_fast.pyc"))
    fast = importlib.import_module("mine_fast")
    topology = topology_with(fast.is_small, "quick")

    with pytest.raises(UnshippableError) as caught:
        ShippedProgram.of(program_of(topology, tmp_path, "yarn"))

    made_at = topology_with.__code__.co_firstlineno + 2
    assert str(caught.value) == (
        f"Step 'quick' (test_program.py:{made_at}) cannot be sent to Spark's workers: "
        f"module 'mine_fast' is not Python source, but {str(tmp_path / 'mine_fast.pyc')!r}. "
        "Install it, in the Python of the workers too."
    )


def test_a_package_that_a_worker_lacks_is_named(tmp_path: Path, is_small: Any) -> None:
    sent = ShippedProgram.of(program_of(topology_with(is_small), tmp_path))
    (tmp_path / "mine_small.py").unlink()
    importlib.invalidate_caches()
    del sys.modules["mine_small"]

    with pytest.raises(UnshippableError) as caught:
        ShippedProgram(sent.data, "another digest").program()

    assert str(caught.value) == (
        "The application cannot be sent to Spark's workers: it cannot be unpickled: "
        "ModuleNotFoundError: No module named 'mine_small'. Give them what it needs: the packages "
        "that are installed here, and the files that your modules read."
    )


def test_a_task_knows_the_partitions_of_topics_and_looks_up_the_rest(tmp_path: Path) -> None:
    shipped = ShippedProgram.of(program_of(topology_with(lambda _k, _v: True), tmp_path, out=3))
    log = worker_log(shipped)
    log.create_topic("chosen", partitions=5)

    partitions_of = shipped.program().partitions_of(lambda: worker_log(shipped))

    assert partitions_of("out") == 3
    assert partitions_of("chosen") == 5
    assert worker_log(shipped) is log


def test_rows_for_later_stages_pass_under_a_relay_key_of_their_partition(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.group_by(lambda _k, v: str(v), key=str).count().to_stream().to("out")
    program = program_of(builder.build(), tmp_path)

    payload = Payload(Batch(0, "digest"))
    blob = pack(payload)

    direct = program.row(1, 5, payload, next_stage=1)
    passing = program.row(2, 5, payload, next_stage=1)

    own_keys = program.relay_keys[shuffle_partition(5, program.shuffle_partitions)]
    assert direct == (5, 1, 5, blob)
    assert passing == (own_keys[0], 2, 5, blob)
    assert program.relayed(2, 5, blob, own_keys[3], next_stage=2) == (5, 2, 5, blob)


def test_many_rows_are_spread_over_the_relay_keys_of_their_partition(tmp_path: Path) -> None:
    """Spark takes 2 GB of a grouping key."""
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).to("out")
    program = program_of(builder.build(), tmp_path)
    payload = Payload(Batch(0, "digest"))

    used = [
        program.row(2, 5, payload, next_stage=1, sent=megabytes << 20)[0]
        for megabytes in range(0, 1024, 8)
    ]

    own_keys = program.relay_keys[shuffle_partition(5, program.shuffle_partitions)]
    assert set(used) == set(own_keys)
    assert {used.count(key) for key in own_keys} == {8}
