"""The snippets of a page, and a place to run them: a directory with a copy of conf/, a database, free ports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from canal_ha.client.node_http import fetch
from canal_ha.errors import NodeUnreachable
from lab import SqlServer, free_port
from lab.ports import LOOPBACK
from lab.process import spawn
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SHOWN = frozenset({"text", "ini"})
"""Languages of what a reader looks at, or does elsewhere. Everything else is run."""
_FENCE = re.compile(r"^```(?P<language>\{?\w*\}?)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND_S = 120.0


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block. line: of its fence, from 1."""

    page: str
    line: int
    language: str
    text: str

    @property
    def head(self) -> tuple[str, str]:
        """Language and first line, by which a test knows the snippet."""
        return self.language, self.text.partition("\n")[0]


def snippets(page: Path) -> tuple[Snippet, ...]:
    """Return the blocks of a page in order, without Sphinx directives. Raises ValueError for one without a language."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if not match["language"]:
            raise ValueError(f"{page}:{line}: a snippet without a language")
        if not match["language"].startswith("{"):
            found.append(Snippet(page.name, line, match["language"], match["text"]))
    return tuple(found)


class Running:
    """A snippet that runs until it is ended, as in a terminal of its own."""

    def __init__(self, command: Sequence[str], directory: Path, environment: dict[str, str], output: Path) -> None:
        self._output = output
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a background job: programs would ignore SIGINT, too
            signal.signal(signal.SIGINT, signal.default_int_handler)
        with output.open("w") as file:
            self.process: subprocess.Popen[Any] = spawn(
                command, cwd=directory, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def output(self) -> str:
        """Return what the snippet has printed so far."""
        return self._output.read_text(errors="replace")

    def prints(self, *texts: str) -> None:
        """Wait until the snippet has printed all of these texts."""
        until(
            lambda: all(text in self.output() for text in texts) or self._ended(),
            seconds=60.0,
            what=f"{texts} in the output",
        )
        missing = [text for text in texts if text not in self.output()]
        assert not missing, f"{missing} not in the output:\n{self.output()}"

    def interrupt(self) -> None:
        """Send Ctrl-C, and wait for the end."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill the snippet, as kill -9 does."""
        self._end(signal.SIGKILL)

    def _ended(self) -> bool:
        return self.process.poll() is not None

    def _end(self, number: signal.Signals) -> None:
        if not self._ended():
            os.killpg(self.process.pid, number)
            self.process.wait(_COMMAND_S)


class Reader:
    """Does what a page tells its reader to do, with the page's own snippets, in order.

    Only addresses and ports are replaced, by those of the servers that run here.
    """

    def __init__(self, page: Path, directory: Path, server: SqlServer, zookeeper: str = "") -> None:
        self._left: Iterator[Snippet] = iter(each for each in snippets(page) if each.language not in SHOWN)
        self._directory = directory
        self._server = server
        self._running: list[Running] = []
        shutil.copytree(ROOT / "conf", directory / "conf", dirs_exist_ok=True)
        self._ports = {port: str(free_port()) for port in ("11111", "8089", "11112", "11121", "8099", "11122")}
        self._ports |= {"3306": str(server.port)} | ({"2181": zookeeper.rpartition(":")[2]} if zookeeper else {})
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "CANAL_IP": LOOPBACK,
            "CANAL_PORT": self._ports["11111"],
            "CANAL_ADMIN_HTTP_PORT": self._ports["8089"],
            "CANAL_METRICS_PULL_PORT": self._ports["11112"],
        }

    # ---- the steps, each of which takes the next snippet

    def sql(self) -> None:
        """Run the statements in the database."""
        text = self._take("sql")
        self._server.execute(*(each.strip() for each in text.split(";") if each.strip()))

    def edit(self, file: str) -> None:
        """Write the settings into a file of conf/, in place of lines with the same keys."""
        self._write(file, self._take("properties"))

    def _write(self, file: str, settings: str) -> None:
        path = self._directory / "conf" / file
        lines = path.read_text().splitlines()
        for setting in settings.splitlines():
            key = setting.partition("=")[0].strip()
            lines = [line for line in lines if line.partition("=")[0].strip() != key] + [setting]
        path.write_text("\n".join(lines) + "\n")

    def save(self, file: str, language: str) -> None:
        """Save the snippet as a file."""
        (self._directory / file).write_text(self._take(language))

    def run(self, language: str = "bash") -> str:
        """Run the snippet to its end, check that it succeeds, and return what it printed."""
        done = subprocess.run(
            self._command(language),
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_S * 3,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self, language: str = "bash") -> Running:
        """Run the snippet in the background."""
        return self._start(self._command(language))

    def first_lesson(self) -> Running:
        """Run the node that the first lesson has started, and that the page expects."""
        self.follow_database()
        return self._start(["canal-ha", "server", "--conf", "conf"])

    def follow_database(self) -> None:
        """Configure the destination as the first lesson did."""
        self._write("example/instance.properties", f"canal.instance.master.address = {self._server.address}")

    def _start(self, command: list[str]) -> Running:
        output = self._directory / f"output-{len(self._running)}"
        running = Running(command, self._directory, self._environment, output)
        self._running.append(running)
        return running

    def installed(self) -> None:
        """Check that the snippet installs the package, and that the command is there. Do not run it."""
        assert "pip install" in self._take("bash")
        assert (Path(sys.executable).parent / "canal-ha").exists()

    def elsewhere(self, *scripts: str) -> None:
        """Check that the snippet runs these scripts, and that they are valid bash.

        Do not run it: the scripts have tests of their own.
        """
        text = self._take("bash")
        assert re.findall(r"deploy/[\w-]+\.sh", text) == list(scripts)
        for script in scripts:
            subprocess.run(["bash", "-n", str(ROOT / script)], check=True)

    # ---- what a reader sees

    def runs(self, *, port: str = "8089", destination: str = "example") -> bool:
        """Return whether a node runs the destination. port: its status port, as on the page."""
        return any(each["destination"] == destination for each in self._destinations(port))

    def subscribed(self, client_id: int, *, port: str = "8089") -> None:
        """Wait until the node has an open stream of this client."""
        until(
            lambda: any(
                stream["client_id"] == client_id and stream["state"] == "open"
                for each in self._destinations(port)
                for stream in each["streams"]
            ),
            seconds=60.0,
            what=f"a subscription of client {client_id}",
        )

    def _destinations(self, port: str) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = fetch(f"http://{LOOPBACK}:{self._ports[port]}")["destinations"]
        except NodeUnreachable:
            return []
        return found

    # ---- inside

    def _take(self, language: str) -> str:
        snippet = next(self._left)
        assert snippet.language == language, f"{snippet.page}:{snippet.line}: expected {language}: {snippet.head}"
        text = snippet.text.replace("zk1:2181,zk2:2181,zk3:2181", f"{LOOPBACK}:2181")
        text = re.sub(r"canal-ha status$", f"canal-ha status --url http://{LOOPBACK}:8089", text, flags=re.MULTILINE)
        return re.sub(r"\b\d{4,5}\b", lambda match: self._ports.get(match[0], match[0]), text)

    def _command(self, language: str) -> list[str]:
        text = self._take(language)
        if language == "python":
            file = self._directory / "snippet.py"
            file.write_text(text)
            return [sys.executable, str(file)]
        return ["bash", "-euo", "pipefail", "-c", text]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for running in self._running:
            running.kill()
        if kind is None:
            left = [f"{each.page}:{each.line}" for each in self._left]
            assert not left, f"snippets that nothing runs: {left}"
