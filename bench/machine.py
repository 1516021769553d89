"""Describes the machine and the versions of all parts of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from canal_ha.decode import kernel
from canal_ha.version import VERSION
from lab import SqlServer


def machine() -> dict[str, str]:
    """Return cores, model, memory, kernel and distribution."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": str(os.cpu_count()),
        "processor": _field("/proc/cpuinfo", "model name", ":"),
        "memory": f"{pages / 2**30:.0f} GiB",
        "system": f"{_field('/etc/os-release', 'PRETTY_NAME', '=')}, Linux {platform.release()}",
    }


def versions(servers: Sequence[SqlServer], peers: frozenset[str]) -> dict[str, str]:
    """Return versions by name. peers: peers in the run."""
    found: dict[str, str] = {
        "canal-ha": f"{VERSION}, kernel {kernel.BUILD}",
        "Python": platform.python_version(),
        **{str(server.flavor): server.version for server in servers},
        "mysql-replication": metadata.version("mysql-replication"),
    }
    if "java" in peers:
        found["canal.server, canal.client"] = "1.1.7"
        found["Java"] = _said(["java", "-version"])
    if "go" in peers:
        found["go-mysql"] = "1.12.0"
    if "mysqlbinlog" in peers:
        found["mariadb-binlog"] = _said(["mariadb-binlog", "--version"])
    return found


def _said(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.splitlines()[0] if done.stdout else "unknown"


def _field(file: str, name: str, mark: str) -> str:
    """Return the value of a line `name mark value` in a system file."""
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(mark)
        if key.strip() == name:
            return value.strip().strip('"')
    return "unknown"
