"""The test driver with a task for each sub-topology, as the runtime has them."""

from __future__ import annotations

from headrace.engine.stores import MemoryStores
from headrace.engine.task import Task
from headrace.testing import TopologyTestDriver
from headrace.topology.subtopologies import SubTopology


class SeparateTasks(TopologyTestDriver):
    """Processes each step to the end, task after task; a task commits when it has no more."""

    def _open_tasks(self) -> list[Task]:
        self._written: set[str] = set()
        self._commit_each_record = False
        parts = [part for part in self._lowered.subtopologies if not part.is_global]
        return [self._separate_task(part) for part in parts]

    def _separate_task(self, part: SubTopology) -> Task:
        return Task(
            [part],
            self._settings,
            MemoryStores(),
            task_id=f"{part.id}_0",
            global_stores=self._global_task.stores,
            wall_clock=self._wall_clock,
        )

    def _run(self) -> None:
        progress = True
        while progress:
            progress = False
            for task in self._tasks:
                progress |= task.process() > 0
                task.commit()
                self._route(task)
