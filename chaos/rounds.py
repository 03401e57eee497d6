"""One round: a workload runs while faults come and go, then everything it wrote is judged."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from subprocess import CalledProcessError, TimeoutExpired

from chaos.checks import Verdict
from chaos.contract import EXACTLY_ONCE, TOPIC_SETTINGS, Offsets, Stores, Workload
from chaos.faults import FAULTS
from chaos.faults.checkpoint import newest
from chaos.faults.steps import IN_FIRST_BATCH
from chaos.feeding import Feeder, is_read
from chaos.judging import Watcher, judge
from chaos.ledger import CHECKS, FaultEntry, RoundEntry, current_commit, summed
from chaos.processes import Usage, growths, leaks, warm
from chaos.registry import Registry
from chaos.scene import Fault, NoRecoveryError, NothingHappenedError, Scene, await_that
from chaos.sites import Site, open_site
from chaos.steps import STEPS
from chaos.stored import stores_of
from chaos.supervisor import Supervisor
from chaos.workloads import WORKLOADS
from headrace import StreamsError

RECOVERY_SECONDS = 60.0
"""The bound on the time from the end of a fault until everything is processed."""

START_SECONDS = 90.0
"""How long the first start may take on a busy machine."""

_MOST_STARTS = 5
_SAMPLE_SECONDS = 1.0
_LONGEST_CALM = 2.0
_REST_SAMPLES = 30
_LONGEST_REST = 90.0
_SURE_LOOKS = 2
"""Of this many checks that ended since an instant, one began after it."""
_LAST_WORDS = 2000


@dataclass(frozen=True)
class Plan:
    """The settings of a round."""

    broker: str
    workload: str
    seed: int
    kinds: tuple[str, ...] = ()
    """Which faults may come."""
    count: int = 0
    """How many of them."""
    rate: float = 200.0
    """How many records are fed in a second, about."""
    mistake: str | None = None
    """A mistake of `chaos.patching.BREAKS` to build in."""
    guarantee: str = EXACTLY_ONCE
    """One of `GUARANTEES`."""
    compares_memory: bool = True
    """Whether what a run holds is compared early and late, which takes it half a minute more."""

    @property
    def command(self) -> str:
        """Return how to run it again."""
        mistake = f" --mistake {self.mistake}" if self.mistake else ""
        return (
            f"python -m chaos --rounds 1 --seed {self.seed} --broker {self.broker}"
            f" --workloads {self.workload} --guarantee {self.guarantee} --count {self.count}"
            f"{mistake} --faults {' '.join(self.kinds)}"
        )

    def faults(self) -> Iterator[Fault]:
        """Yield the faults in their order: all kinds before one comes again."""
        chance = Random(self.seed)
        kinds = [kind for kind in self.kinds if self._allows(FAULTS[kind])]
        if self.guarantee == EXACTLY_ONCE and not {*STEPS}.isdisjoint(kinds):
            yield IN_FIRST_BATCH
        while kinds:
            yield from (FAULTS[kind] for kind in chance.sample(kinds, len(kinds)))

    def _allows(self, fault: Fault) -> bool:
        is_possible = self.guarantee == EXACTLY_ONCE or not fault.transactional
        is_meant = fault.workload in (None, self.workload)
        return is_possible and is_meant and self.broker in fault.brokers


class Round:
    """A running application with everything around it; a ``with`` block starts and ends it.

    Args:
        plan: The settings of the round.
        folder: Keeps everything.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.workload: Workload = WORKLOADS[plan.workload]
        self.faults: list[FaultEntry] = []
        self.missed: list[str] = []
        """Faults that took no effect: they do not count."""
        self.repeated = 0
        """How many results were there again because a batch was replayed, where that is allowed."""
        self.problems: list[str] = []
        self._began = time.monotonic()
        self._usage: dict[int, list[Usage]] = {}
        self._looks_healed = 0
        """How many checks the watcher had made when the last fault was over."""
        self._over = threading.Event()

    def __enter__(self) -> Round:
        self.site: Site = open_site(self.plan.broker, self.folder)
        with ExitStack() as on_failure:
            on_failure.push(self.site)
            self._start()
            on_failure.pop_all()
        return self

    def _start(self) -> None:
        for topic, partitions in {**self.workload.topics, **self.workload.outputs}.items():
            settings = {**TOPIC_SETTINGS, **self.workload.topic_settings.get(topic, {})}
            self.site.log.create_topic(topic, partitions=partitions, settings=settings)
        self.registry = Registry() if self.workload.has_registry else None
        application_id = f"chaos-{self.plan.workload}"
        self.supervisor = Supervisor(
            self.folder,
            self.plan.workload,
            {
                "application.id": application_id,
                "num.stream.threads": "2",
                "processing.guarantee": self.plan.guarantee,
                **self.site.settings,
            },
            self.plan.mistake,
            None if self.registry is None else self.registry.url,
        )
        self.feeder = Feeder(
            self.workload, self.site, application_id, self.plan.seed, self.plan.rate
        )
        self.scene = Scene(
            self.site,
            self.supervisor,
            self.feeder,
            tuple(self.workload.outputs),
            Random(self.plan.seed),
            self.plan.seed,
            self.registry,
        )
        self.watcher = Watcher(self.workload, self.site, application_id, self.plan.guarantee)
        self.supervisor.start()
        self.feeder.start()
        self.watcher.start()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._sampler.join()
        self.feeder.stop()
        self.watcher.stop()
        self.supervisor.kill()
        if self.registry is not None:
            self.registry.close()
        self.site.__exit__(*error)

    def await_progress(self) -> float | None:
        """Wait until everything is processed that is there now; return the seconds it took."""
        ends, starts = self.site.ends(self.workload.topics), self.supervisor.starts

        def is_past() -> bool:
            return is_read(self._progress(), ends)

        def is_hopeless() -> bool:
            return self.supervisor.starts - starts > _MOST_STARTS

        began = time.monotonic()
        await_that(lambda: is_past() or is_hopeless(), RECOVERY_SECONDS)
        return time.monotonic() - began if is_past() else None

    def await_first_batch(self) -> None:
        """Wait until the application works."""
        if not await_that(lambda: bool(self._progress()), START_SECONDS):
            self.problems.append(f"It did not start: {self.supervisor.last_output()}")

    def _progress(self) -> Offsets:
        with suppress(StreamsError):  # brokers that have just come back may not answer yet
            return self.site.committed(self.supervisor.application_id)
        return {}

    def inflict(self, fault: Fault) -> bool:
        """Inject a fault and wait for the recovery; return whether there was one."""
        starts, second = self.supervisor.starts, time.monotonic() - self._began
        has_happened, has_failed = True, False
        try:
            detail = fault.inflict(self.scene)
        except NothingHappenedError as error:
            detail, has_happened = str(error), False
        except NoRecoveryError as error:
            detail, has_failed = str(error), True
        recovery = None if has_failed else self.await_progress()
        self._looks_healed = self.watcher.looks
        if recovery is None:
            self.problems.append(
                f"No recovery from {fault.kind} ({detail}) within {RECOVERY_SECONDS:g} s: "
                f"{self.supervisor.last_output()}"
            )
        took = round(RECOVERY_SECONDS if recovery is None else recovery, 2)
        if has_happened:
            again = self.supervisor.starts - starts
            self.faults.append(FaultEntry(fault.kind, detail, round(second, 2), took, again))
        else:
            self.missed.append(f"{fault.kind} did not happen: {detail}")
        return recovery is not None

    def rest(self) -> None:
        """Feed on and break nothing, until the memory and the files of a run can be compared."""
        if not self.plan.compares_memory:
            return
        began = len(self._warm_samples())
        await_that(lambda: len(self._warm_samples()) >= began + _REST_SAMPLES, _LONGEST_REST)

    def _warm_samples(self) -> list[Usage]:
        return warm(self._usage.get(self.supervisor.session.driver, []))

    def finish(self) -> RoundEntry:
        """Wait until all is processed, end the application in order, and judge what it wrote."""
        self.feeder.stop()
        if self.feeder.error is not None:
            self.problems.append(f"Records could not be written: {self.feeder.error!r}")
        if self.await_progress() is None:
            self.problems.append(f"Input was left over: {self.supervisor.last_output()}")
        self.supervisor.end_clock_faults()
        time.sleep(self.workload.settle_seconds)
        self._over.set()
        self._sampler.join()
        if not self.supervisor.close():
            self.problems.append(f"A disorderly end: {self.supervisor.last_output()}")
        grown = self._growths()
        held = [*chain(*self._usage.values())]
        application_id, guarantee = self.supervisor.application_id, self.plan.guarantee
        stores = self._stores()
        # A process that was killed has not reported its counts.
        dropped = self.supervisor.dropped() if self.supervisor.starts == 1 else None
        judged = judge(self.workload, self.site, application_id, guarantee, stores, dropped)
        self.repeated = judged.repeated
        found = [self._watched(), judged]
        return RoundEntry(
            seed=self.plan.seed,
            commit=current_commit(),
            broker=self.plan.broker,
            workload=self.plan.workload,
            faults=self.faults,
            records=self.feeder.sent + self.feeder.injected,
            verdict=dict(summed(each.counts() for each in found)),
            problems=self.problems + [text for each in found for text in each.examples],
            seconds=round(time.monotonic() - self._began, 1),
            megabytes=round(max((each.bytes for each in held), default=0) / 1e6, 1),
            files=max((each.files for each in held), default=0),
            mistake=self.plan.mistake,
            guarantee=guarantee,
            repeated=judged.repeated,
            checks=CHECKS,
            compared=len(grown),
            command=self.plan.command,
            grown_megabytes=round(max((each for each, _ in grown), default=0) / 1e6, 1),
            grown_files=max((each for _, each in grown), default=0),
        )

    def _growths(self) -> list[tuple[int, int]]:
        """Return by how many bytes and files each run grew that can be compared.

        Writes the samples of each run, one per second, to a file.
        """
        held = {str(driver): samples for driver, samples in self._usage.items()}
        (self.folder / "usage.json").write_text(json.dumps(held))
        self.problems += leaks(self._usage.values())
        runs = growths(self._usage.values())
        grown = [(late.bytes - early.bytes, late.files - early.files) for early, late in runs]
        if self.plan.compares_memory and not grown:
            self.problems.append("No run was long enough to compare what it held early and late.")
        return grown

    def _watched(self) -> Verdict:
        """Return the findings of the watcher, if it has checked since the last fault."""
        found = self.watcher.stop()
        if self.watcher.looks < self._looks_healed + _SURE_LOOKS:
            self.problems.append(
                "There was no check after the last fault: the reader beside the round failed with "
                f"{self.watcher.error!r}."
            )
        return found

    def _stores(self) -> Stores | None:
        """Return what the state holds, if the workload has stores to compare."""
        if not self.workload.stores:
            return None
        try:
            return stores_of(self.workload, self.supervisor.settings)
        except (CalledProcessError, TimeoutExpired) as error:
            said = str(error.stderr or error)[-_LAST_WORDS:]
            self.problems.append(f"Its state cannot be read: {said}")
            return None

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            session = self.supervisor.session
            last = newest(self.supervisor.checkpoint / "offsets")
            batch = 0 if last is None else int(last.name)
            usage = session.usage()._replace(batch=batch)
            self._usage.setdefault(session.driver, []).append(usage)


def run_round(plan: Plan, folder: Path, show: Callable[[str], object]) -> RoundEntry:
    """Run a round, print its progress, and return its result."""
    with Round(plan, folder) as running:
        calm = Random(plan.seed)
        for fault, _ in zip(plan.faults(), range(plan.count), strict=False):
            if fault is not IN_FIRST_BATCH:
                running.await_first_batch()
                time.sleep(calm.uniform(0.0, _LONGEST_CALM))
            missed = len(running.missed)
            recovered = running.inflict(fault)
            if len(running.missed) > missed:
                show(f"            {running.missed[-1]}")
            else:
                last = running.faults[-1]
                show(f"  {last.second:6.1f} s  {last.kind}: {last.detail}; {last.recovery:.1f} s")
            if not recovered:
                break
        running.await_first_batch()
        running.rest()
        entry = running.finish()
        if running.repeated:
            show(f"  {running.repeated} results of replayed batches were there again")
        return entry
