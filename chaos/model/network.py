"""Between processes and the broker: requests are late, doubled or lost, and so are answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

from chaos.model.broker import Code, ModelBroker, RequestRefusedError, Target
from chaos.model.scheduler import Process, Scheduler

Request: TypeAlias = "partial[Any]"
"""A method of `ModelBroker` with its arguments by name."""

ANSWER_TIMEOUT = 60
"""How long a client waits for an answer before it asks again, in ticks."""
TRANSACTION_TIMEOUT = 700
_PAUSE_SECONDS = 0.02


class TimedOutError(Exception):
    """No answer came in time: the request may have happened, may still happen, or never."""


class Connection(Protocol):
    """The connection of a client to the broker."""

    def call(self, request: Request, /) -> Any:
        """Ask once, and return the answer.

        Raises:
            RequestRefusedError: The broker says no.
            TimedOutError: It says nothing.
        """
        ...

    def pause(self) -> None:
        """Wait a moment before asking again."""


class DirectConnection:
    """Reaches the broker at once, every time."""

    def __init__(self, broker: ModelBroker) -> None:
        self._broker = broker
        self._lock = threading.Lock()

    def call(self, request: Request, /) -> Any:
        with self._lock:
            try:
                return request.func(self._broker, **request.keywords)
            finally:
                while self._broker.unwritten:
                    self._broker.write_control_record(*self._broker.unwritten.pop(0))

    def pause(self) -> None:
        time.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True)
class Weather:
    """The probability of each mishap, for each request."""

    delayed: float = 0.0
    doubled: float = 0.0
    lost: float = 0.0
    unanswered: float = 0.0
    cut: float = 0.0
    """The connection of a process is down for some ticks, in one direction or both."""
    killed: float = 0.0
    frozen: float = 0.0


class Network:
    """Carries the requests of all processes to one broker.

    Args:
        scheduler: Decides what happens when.
        broker: Answers.
        weather: The possible faults.
    """

    def __init__(self, scheduler: Scheduler, broker: ModelBroker, weather: Weather) -> None:
        self._scheduler = scheduler
        self._random = scheduler.random
        self._broker = broker
        self.weather = weather
        self._cuts: dict[Process, tuple[int, bool]] = {}
        """Until when a process is cut off, and whether its requests still arrive."""

    def call(self, process: Process, request: Request) -> Any:
        """Send a request for a process, and wait for the answer."""
        self.strike(process)
        answer = process.wait(partial(self._send, process, request))
        if isinstance(answer, Exception):
            raise answer
        self.strike(process)
        return answer

    def strike(self, process: Process) -> None:
        """Decide at random whether a process lives on."""
        if self._happens(self.weather.killed):
            process.die()
        if self._happens(self.weather.frozen):
            process.freeze(self._random.randint(50, 2500))
            process.sleep(0)

    def _send(self, process: Process, request: Request, number: int) -> None:
        weather = self.weather
        if self._happens(weather.cut):
            until = self._scheduler.now + self._random.randint(100, 600)
            self._cuts[process] = until, self._random.random() < 0.5
        cut_until, arrives = self._cuts.get(process, (0, True))
        is_cut = self._scheduler.now < cut_until

        def arrive(*, answered: bool) -> None:
            answer = self.apply(process.name, request)
            if answered:
                self._scheduler.after(self._latency(), partial(process.wake, number, answer))

        delay = self._latency()
        if self._happens(weather.delayed):
            delay = self._random.randint(ANSWER_TIMEOUT, 2000)
        answered = not (is_cut or self._happens(weather.unanswered))
        if not (is_cut and not arrives) and not self._happens(weather.lost):
            self._scheduler.after(delay, partial(arrive, answered=answered))
        if self._happens(weather.doubled):
            later = self._random.choice((self._latency(), self._random.randint(20, 2000)))
            self._scheduler.after(later, partial(arrive, answered=False))
        self._scheduler.after(ANSWER_TIMEOUT, partial(process.wake, number, TimedOutError()))

    def apply(self, who: str, request: Request) -> Any:
        """Return the answer of the broker, now; a refusal is returned too."""
        answer: Any
        try:
            answer = request.func(self._broker, **request.keywords)
        except RequestRefusedError as error:
            answer = error
        if self._scheduler.trace is not None:
            arguments = ", ".join(f"{name}={value}" for name, value in request.keywords.items())
            self._scheduler.say(who, f"{request.func.__name__}({arguments}) -> {answer}")
        for transactional_id, target in self._broker.unwritten:
            self._later(partial(self._end, transactional_id, target))
        self._broker.unwritten.clear()
        for opened in self._broker.opened:
            self._scheduler.after(TRANSACTION_TIMEOUT, partial(self._expire, *opened))
        self._broker.opened.clear()
        return answer

    def _expire(self, transactional_id: str, opened: int) -> None:
        self._broker.expire(transactional_id, opened)
        for each in self._broker.unwritten:
            self._scheduler.say("broker", f"ends {transactional_id} after its time: {each}")
            self._later(partial(self._end, *each))
        self._broker.unwritten.clear()

    def _end(self, transactional_id: str, target: Target) -> None:
        state = self._broker.transactional[transactional_id].state
        self._scheduler.say("broker", f"{state.value} of {transactional_id} reaches {target}")
        self._broker.write_control_record(transactional_id, target)

    def _later(self, call: Callable[[], None]) -> None:
        slow = self._happens(self.weather.delayed)
        self._scheduler.after(self._random.randint(20, 300) if slow else self._latency(), call)

    def _latency(self) -> int:
        return self._random.randint(1, 5)

    def _happens(self, likelihood: float) -> bool:
        return likelihood > 0 and self._random.random() < likelihood


class SimulatedConnection:
    """The connection of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self._process = process

    def call(self, request: Request, /) -> Any:
        return self.network.call(self._process, request)

    def pause(self) -> None:
        self._process.sleep(7)


class PromptConnection(SimulatedConnection):
    """The connection of a process whose requests are not fenced: they are not late or doubled.

    It may die or be stopped before and after each of them. `docs/reliability.md` describes the
    effect of a late one, under "Not promised".

    Args:
        network: Between the process and the broker.
        process: The process that sends the requests.
        may_ask: Whether the process still leads.
    """

    def __init__(
        self, network: Network, process: Process, may_ask: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(network, process)
        self._may_ask = may_ask

    def call(self, request: Request, /) -> Any:
        self.network.strike(self._process)
        if not self._may_ask():
            raise RequestRefusedError(Code.UNKNOWN_MEMBER_ID)
        answer = self.network.apply(self._process.name, request)
        self._process.sleep(2)
        self.network.strike(self._process)
        if isinstance(answer, Exception):
            raise answer
        return answer
