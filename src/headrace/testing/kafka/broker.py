"""RunningBroker: a Kafka broker as a Java process, and how it ends."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from headrace.errors import BrokerError
from headrace.testing.kafka.jars import jars

START_SECONDS = 180
"""How long a broker may take until it answers."""
STOP_SECONDS = 60


class RunningBroker:
    """A broker that runs. A ``with`` block ends it, and deletes its folder if that was temporary.

    Args:
        folder: Holds its settings, its log and its data.
        properties: All of its settings.
        java_options: The options of its Java process.
        is_temporary: Whether the end of the block deletes the folder.
    """

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, str],
        java_options: Sequence[str],
        *,
        is_temporary: bool,
    ) -> None:
        self.folder = folder
        self.properties = dict(properties)
        self.node = int(properties["node.id"])
        listeners = (each.partition("://") for each in properties["listeners"].split(","))
        addresses = {name: address for name, _, address in listeners}
        self.address = addresses["PLAINTEXT"]
        """The address for ``bootstrap_servers``."""
        self.sasl_address = addresses.get("SASL_PLAINTEXT", "")
        """The address for clients that log in, if it has users."""
        self.behind_proxy = addresses.get("PROXIED", "")
        """The target of a proxy; the broker advertises the proxy's port to its clients."""
        self._java_options = java_options
        self._is_temporary = is_temporary
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that lead a client or an application here: ``**broker.settings``."""
        return {"bootstrap_servers": self.address}

    @property
    def pid(self) -> int:
        """The process, which is the JVM itself."""
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> Path:
        """The log file of the broker."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Start it, also again, with the same data and ports; `await_ready` waits for it."""
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        java = ["java", *self._java_options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [*java, "-cp", f"{jars()}/*", "kafka.Kafka", str(file)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)  # noqa: S603

    def await_ready(self) -> None:
        """Wait until it accepts connections.

        Raises:
            BrokerError: It has ended, or does not answer; the message has the end of its log.
        """
        assert self._process is not None
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.poll() is not None:
                msg = f"Broker {self.node} has ended. The end of its log:\n{self._end_of_log()}"
                raise BrokerError(msg)
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline:
                    msg = (
                        f"Broker {self.node} does not answer after {START_SECONDS} s. The end of "
                        f"its log:\n{self._end_of_log()}"
                    )
                    raise BrokerError(msg) from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """End it in order: it hands over its partitions, and writes its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self) -> int:
        """Wait until it ends."""
        assert self._process is not None
        return self._process.wait()

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


class RunningCluster:
    """Brokers of one cluster. A ``with`` block ends them all.

    Args:
        brokers: Its nodes, in order.
    """

    def __init__(self, brokers: Sequence[RunningBroker]) -> None:
        self.brokers = tuple(brokers)
        self.address = ",".join(broker.address for broker in brokers)
        """The addresses of all, for ``bootstrap_servers``."""

    def __enter__(self) -> RunningCluster:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as left:
            for broker in self.brokers:
                left.push(broker)
