"""The test driver with a task for each subtopology, as the runtime has them."""

from __future__ import annotations

from headrace.engine.task import Task
from headrace.state.maps import MemoryStores
from headrace.testing import TopologyTestDriver
from headrace.topology.subtopologies import Subtopology


class SeparateTasks(TopologyTestDriver):
    """Processes each step to the end, task after task; a task commits when it has no more."""

    def _open_tasks(self) -> list[Task]:
        self._written: set[str] = set()
        self._commit_each_record = False
        subtopologies = [
            subtopology for subtopology in self._lowered.subtopologies if not subtopology.is_global
        ]
        return [self._separate_task(subtopology) for subtopology in subtopologies]

    def _separate_task(self, subtopology: Subtopology) -> Task:
        return Task(
            [subtopology],
            self._settings,
            MemoryStores(),
            task_id=f"{subtopology.id}_0",
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
