"""A port goes to one process, however many ask at once."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lab import ports

TAKE = """
import sys
from lab import ports
first, last, count = map(int, sys.argv[1:])
ports.PORTS = range(first, last)
print(*(ports.free_port() for _ in range(count)), flush=True)
sys.stdin.read()
"""
"""A program that takes ports, prints them and keeps them until its standard input ends."""


@contextmanager
def taker(among: range, count: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process that takes this many ports; kill it at the end."""
    command = [sys.executable, "-c", TAKE, str(among.start), str(among.stop), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def taken(process: subprocess.Popen[str]) -> list[int]:
    """Wait for the ports that a process has taken, and return them; [] if it did not get them all."""
    assert process.stdout is not None
    return [int(port) for port in process.stdout.readline().split()]


def test_two_processes_at_once_got_the_same_port() -> None:
    """Processes that each take many ports at once, among few, get different ones."""
    among = range(ports.PORTS.start, ports.PORTS.start + 2000)
    with ExitStack() as stack:
        processes = [stack.enter_context(taker(among, 300)) for _ in range(4)]
        given = [port for process in processes for port in taken(process)]
    assert len(given) == 4 * 300
    assert len(set(given)) == len(given)


def test_the_ports_of_a_killed_process_are_free_again() -> None:
    """A process that is killed leaves no reservation behind."""
    port = ports.free_port()
    ports_of_it = range(port + 1, port + 41)
    with taker(ports_of_it, 30) as first:
        assert len(taken(first)) == 30
        with taker(ports_of_it, 30) as second:
            assert taken(second) == []
    with taker(ports_of_it, 30) as third:
        assert len(taken(third)) == 30


def test_a_port_in_use_is_not_given() -> None:
    """A program that reserves nothing keeps its port, too."""
    with socket.create_server((ports.LOOPBACK, ports.free_port())) as server:
        port = server.getsockname()[1]
        with taker(range(port, port + 1), 1) as process:
            assert taken(process) == []
