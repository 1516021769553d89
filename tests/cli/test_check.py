"""`canal-ha check` on servers that do not answer."""

from __future__ import annotations

import signal
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Thread

from click.testing import CliRunner

from canal_ha.cli.check import command
from lab.node import PROGRAM
from lab.ports import LOOPBACK

DESTINATIONS = ("billing", "crm", "shop")


def configured(conf: Path, listener: socket.socket) -> str:
    """Write the configuration of a node whose destinations all have this server. Return the server's address."""
    address = f"{LOOPBACK}:{listener.getsockname()[1]}"
    names = ",".join(DESTINATIONS)
    ports = "canal.port = 0\ncanal.metrics.pull.port = 0\ncanal.admin.http.port = -1\n"
    (conf / "canal.properties").write_text(f"{ports}canal.destinations = {names}\n")
    for name in DESTINATIONS:
        (conf / name).mkdir()
        text = f"canal.instance.master.address = {address}\ncanal.instance.dbUsername = canal\n"
        (conf / name / "instance.properties").write_text(text)
    return address


def test_destinations_whose_servers_hang_are_checked_at_the_same_time(tmp_path: Path) -> None:
    """Each would take half a minute. The server here lets all clients go once it has one of each destination."""
    together = Barrier(len(DESTINATIONS))
    met: list[bool] = []

    def hang(connection: socket.socket) -> None:
        with connection:
            try:
                together.wait(5.0)
                met.append(True)
            except BrokenBarrierError:
                met.append(False)

    def accept(listener: socket.socket) -> None:
        for _ in DESTINATIONS:
            connection, _ = listener.accept()
            Thread(target=hang, args=(connection,), daemon=True).start()

    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((LOOPBACK, 0)))
        Thread(target=accept, args=(listener,), daemon=True).start()
        address = configured(tmp_path, listener)
        done = CliRunner().invoke(command, ["--conf", str(tmp_path)])
    assert met == [True] * len(DESTINATIONS)
    failed = [line.split()[1] for line in done.output.splitlines() if line.startswith("FAILED") and address in line]
    assert failed == list(DESTINATIONS)
    assert done.exit_code == 1


def test_an_interrupt_ends_it_while_a_server_hangs(tmp_path: Path) -> None:
    """It waited for its threads, so for half a minute and longer. A second interrupt ended it with a traceback."""
    with socket.create_server((LOOPBACK, 0)) as listener, ExitStack() as stack:
        configured(tmp_path, listener)
        command = [PROGRAM, "check", "--conf", str(tmp_path)]
        process = stack.enter_context(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        for _ in DESTINATIONS:
            connection, _ = listener.accept()
            stack.enter_context(connection)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=8.0)
    assert (process.returncode, errors.split()) == (1, ["Aborted!"])
