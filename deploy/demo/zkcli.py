"""Shows znodes with ZooKeeper's own command line."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from deploy.demo.show import say
from lab import StartFailed

_PROGRAM = "/usr/share/zookeeper/bin/zkCli.sh"  # path in Debian's package
_SEPARATOR = "version"  # a command with a unique one-line answer
_ANSWER = "ZooKeeper CLI version:"
_CHATTER = (
    "WATCHER::",
    "WatchedEvent ",
    "SLF4J: ",
)  # its own log lines
_SMALL_JVM = "-Xmx64m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def zkcli(hosts: str, *commands: str) -> None:
    """Print zkCli's answers to these commands. `... | grep WORD` keeps the lines with the word."""
    asked = [command.partition(" | grep ")[0] for command in commands]
    for command, answer in zip(commands, _answers(hosts, asked), strict=True):
        word = command.partition(" | grep ")[2]
        say(f"zkCli> {command}")
        for line in answer:
            if word in line:
                say(f"  {line}")


def _answers(hosts: str, commands: Sequence[str]) -> list[list[str]]:
    """Return the lines of each command's answer, errors included."""
    lines = [_SEPARATOR, *(line for command in commands for line in (command, _SEPARATOR)), "quit"]
    done = subprocess.run(
        [_PROGRAM, "-server", hosts],
        input="".join(f"{line}\n" for line in lines),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "CLIENT_JVMFLAGS": _SMALL_JVM},
        timeout=60,
        check=False,
    )
    answers: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith(_ANSWER):
            answers.append([])
        elif answers and line and not line.startswith(_CHATTER):
            answers[-1].append(line)
    if len(answers) != len(commands) + 1:
        raise StartFailed(f"{_PROGRAM} does not answer\n{done.stdout}")
    return answers[:-1]
