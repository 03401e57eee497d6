"""Three instances as real processes; one of them is killed, and the others still answer."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import uvicorn

from headrace import KafkaStreams, StreamsConfig
from headrace.brokers import open_log
from headrace.examples.child_settings import settings_file
from headrace.examples.feeding import Encoding
from headrace.examples.instances.app import STORE, app
from headrace.examples.instances.dashboard import add_routes
from headrace.examples.instances.discovery import described, knows
from headrace.examples.instances.feed import TOPICS, feed
from headrace.examples.running import create_topics, used_topics
from headrace.queries import QueryClient, create_app

KEY = "key-A"
ALL_TOPICS = dict.fromkeys([*TOPICS, "event-counts", "events-dead"], TOPICS["events"])


def applications() -> list[KafkaStreams]:
    """Return all applications of the story."""
    return [app]


def main(config: StreamsConfig) -> int:
    """Run the story, then show the dashboard until Ctrl-C; return 0 if all is found."""
    own, *others, page = free_addresses(4)
    merged = app.config.overlaid_by(config).with_settings(application_server=own)
    write_input(merged)
    with KafkaStreams(app.topology, merged) as streams, served(others, config) as processes:
        if not knows(streams, 3):
            print("The three instances do not find each other.")
            return 1
        print("\n".join(described(streams, KEY)))
        ask([own, *others])
        processes[0].kill()
        print(f"{others[0]} is killed.")
        if not knows(streams, 2):
            print("The others do not see that it is gone.")
            return 1
        print("\n".join(described(streams, KEY)))
        ask([own, others[1]])
        web = create_app(streams)
        add_routes(web)
        print(f"The dashboard is at http://{page}/dashboard, until Ctrl-C.")
        host, _, port = page.rpartition(":")
        uvicorn.run(web, host=host, port=int(port), log_level="warning")
    return 0


def free_addresses(count: int) -> list[str]:
    """Return addresses of this machine at which nothing listens."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{each.getsockname()[1]}" for each in taken]
    for each in taken:
        each.close()
    return found


def write_input(config: StreamsConfig) -> None:
    """Create the topics, and write all events; an earlier run may have done it."""
    with closing(open_log(config)) as log:
        create_topics(log, ALL_TOPICS)
        if not used_topics(log, TOPICS):
            log.append(map(Encoding(app, TOPICS).raw, feed()))


@contextmanager
def served(addresses: list[str], config: StreamsConfig) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start ``headrace serve`` at some addresses; end what is left after the block."""
    program = f"{__package__}.app" if __package__ else str(Path(__file__).with_name("app.py"))
    with settings_file(config) as file:
        command = [
            sys.executable,
            "-m",
            "headrace",
            "serve",
            program,
            "--command-config",
            str(file),
        ]
        processes = [
            subprocess.Popen([*command, "--quiet", "--server", each])  # noqa: S603
            for each in addresses
        ]
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()


def ask(addresses: list[str]) -> None:
    for each in addresses:
        with QueryClient(each, timeout="2m") as client:
            print(f"{each}  get({KEY!r}) = {client.store(STORE).get(KEY)}")
