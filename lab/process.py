"""A server process that ends with its starter. One thread that lives as long as the process starts all children."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from lab.ports import LOOPBACK

# Linux sends the parent-death signal when the *thread* that started the child ends. So one thread that ends only with
# the interpreter starts all children.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")


class StartFailed(Exception):
    """A server did not start; the message has the reason and the end of its log."""


def temporary_directory(name: str) -> Path:
    """Create a directory that is removed at the end of this process."""
    path = Path(tempfile.mkdtemp(prefix=f"canal-ha-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def spawn(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Start a program that gets SIGKILL when this process ends; options are Popen's."""
    # setpriv (util-linux, on every Debian) asks for the parent-death signal and then becomes the command.
    guarded = ["setpriv", "--pdeathsig", "KILL", *command]
    return _spawner.submit(lambda: subprocess.Popen(guarded, stdin=subprocess.DEVNULL, **options)).result()


def memory_mib(pid: int | str, field: str = "VmRSS") -> float:
    """Return the memory of a process.

    pid: of the process, or "self".
    field: of /proc/PID/status. VmRSS: resident now; VmHWM: the most that was resident since the program started, which
        getrusage mixes with that of the program before.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def family_mib(pid: int) -> float:
    """Return the memory of a process and all its descendants, MiB. A page that several share counts once."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = [
            child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
        ]
    except OSError:
        return 0.0  # it has ended
    own = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024
    return own + sum(family_mib(int(child)) for child in children)


class Process:
    """One child process with a port, a directory and a log; keeps port and directory across restarts.

    start() returns when the server answers, and raises StartFailed. stop() asks it to end and waits; kill() sends
    SIGKILL; pause() and resume() send SIGSTOP and SIGCONT. Every method may be called in any state and from any
    thread, but not from two threads at once. As a context manager it starts and stops the server.
    """

    start_timeout_s = 60.0
    stop_timeout_s = 20.0

    def __init__(self, name: str, port: int, directory: Path | None = None) -> None:
        self.name = name
        self.port = port
        self.directory = directory or temporary_directory(name)
        self.log = self.directory / f"{name}.log"
        self.start_seconds = 0.0
        """Duration of the last start, s."""
        self._child: subprocess.Popen[Any] | None = None

    def command(self) -> Sequence[str]:
        """Return the command line that starts the server."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        """Return additional environment variables."""
        return {}

    def prepare(self) -> None:
        """Create the files that the server needs before its first start."""

    def ready(self) -> bool:
        """Return whether the server answers; called many times a second during the start."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"{LOOPBACK}:{self.port}"

    def alive(self) -> bool:
        """Return whether the process exists, even if it is paused."""
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        """Return the process id; raises StartFailed if it does not run."""
        if self._child is None or self._child.poll() is not None:
            raise StartFailed(f"{self.name} does not run")
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of an ended process, else None."""
        return None if self._child is None else self._child.poll()

    def launch(self) -> None:
        """Start the process without waiting for it to answer."""
        if self.alive():
            return
        self.prepare()
        with self.log.open("ab") as log:
            self._child = spawn(
                self.command(),
                cwd=self.directory,
                env={**os.environ, **self.environment()},
                stdout=log,
                stderr=subprocess.STDOUT,
                # its own session: Ctrl-C reaches only the starter, which then ends the child
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until the server answers; raises StartFailed if it ends or takes too long."""
        began = time.monotonic()
        while not self.ready():
            if not self.alive():
                raise StartFailed(f"{self.name} ended with code {self.exit_code} while starting\n{self.log_tail()}")
            if time.monotonic() - began > self.start_timeout_s:
                tail = self.log_tail()
                self.kill()
                raise StartFailed(f"{self.name} did not answer within {self.start_timeout_s:.0f} s\n{tail}")
            time.sleep(0.03)

    def start(self) -> Self:
        """Start and wait until the server answers."""
        began = time.monotonic()
        self.launch()
        self.wait_ready()
        self.start_seconds = time.monotonic() - began
        return self

    def stop(self) -> None:
        """Stop in an orderly way; send SIGKILL after stop_timeout_s."""
        if self._child is None or not self.alive():
            return
        self.resume()
        self._child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(self.stop_timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kill at once, like a crash."""
        if self._child is not None and self.alive():
            self._child.kill()
            self._child.wait()

    def restart(self) -> Self:
        """Stop in an orderly way if it runs, then start on the same port with the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Pause the process (SIGSTOP), and wait for all threads: sockets stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resume a paused process."""
        if self.alive():
            os.kill(self.pid, signal.SIGCONT)

    def log_tail(self, lines: int = 25) -> str:
        """Return the end of the log, for messages."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object = None, error: BaseException | None = None, traceback: object = None) -> None:
        if error is not None:  # pytest prints the notes of what failed a test, and the directory is about to go
            error.add_note(f"\n{self.name}, the end of its log:\n{self.log_tail()}")
        self.kill()  # the results of an orderly end are not needed
        shutil.rmtree(self.directory, ignore_errors=True)
