"""A node with the usual soft limit of 1,024 open files takes as many connections as it is configured for."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource, sys
from canal_ha.node.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[1])))
raise_limit(500)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def limited(hard: int) -> str:
    """Return what a process with this hard limit says: its new soft limit, and warnings."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(hard)], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def test_the_soft_limit_of_open_files_does_not_fill_before_the_connections() -> None:
    """It becomes the hard one. A hard limit below the connections and a reserve is told."""
    assert limited(900).split() == ["900"]
    told = limited(600)
    assert "node.few_descriptors" in told
    assert "needed" in told
