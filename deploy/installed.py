"""Check a canal-ha that pip has installed: the Python of its environment runs this file, and imports no checkout.

    python deploy/installed.py      exit code 1 and one line for each fault; cibuildwheel and the long suites run it

It asks for the version, loads each module of the compiled kernel and each file of data, and starts a node, whose page
it reads. It needs no server and no package but canal-ha's own.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from importlib import import_module, metadata, resources
from pathlib import Path

START_S = 60.0
LOOPBACK = "127.0.0.1"
os.environ["CANAL_HA_KERNEL"] = "require"  # before the first import
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "canal-ha")


def version() -> Iterator[str]:
    """Yield what is wrong with the command and its version."""
    done = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True)
    if metadata.version("canal-ha") not in done.stdout:
        yield f"canal-ha --version says {done.stdout + done.stderr!r}, and pip says {metadata.version('canal-ha')}"


def kernel() -> Iterator[str]:
    """Yield the modules of the kernel that are not compiled."""
    from canal_ha.decode import kernel as installed

    for name in installed.HOT:
        module = import_module(f"{installed.__name__}.{name}")
        if not str(module.__file__).endswith(".so"):
            yield f"{module.__file__} is not compiled"


def data() -> Iterator[str]:
    """Yield the files of the page, the pipelines and the protocol that cannot be used."""
    package = resources.files("canal_ha")
    schemas = [package / "pipeline/schema.json", *(package / "pipeline/targets").iterdir()]
    for schema in schemas:
        if schema.name.endswith(".json") and not json.loads(schema.read_text()):
            yield f"{schema} is empty"
    if not (package / "pipeline/schema.json").is_file():
        yield "the schemas of pipelines are missing"
    for name in ("py.typed", "spark/log4j2.properties", "wire/proto/canal_protocol.proto"):
        if not (package / name).is_file():
            yield f"{package / name} is missing"


def node() -> Iterator[str]:
    """Yield what is wrong with the page of a node without destinations."""
    with tempfile.TemporaryDirectory() as directory:
        conf = Path(directory) / "conf"
        conf.mkdir()
        ports = dict(
            zip(("canal.port", "canal.metrics.pull.port", "canal.admin.http.port"), _free_ports(3), strict=True)
        )
        lines = {"canal.ip": LOOPBACK, "canal.destinations": "", **ports}
        (conf / "canal.properties").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        with subprocess.Popen(
            [PROGRAM, "server", "--conf", str(conf)], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            url = f"http://{LOOPBACK}:{ports['canal.admin.http.port']}"
            try:
                yield from _page(process, url)
            finally:
                process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=START_S)
        if process.returncode:
            yield f"the node ended with code {process.returncode}: {output.decode()[-2000:]}"


def _page(process: subprocess.Popen[bytes], url: str) -> Iterator[str]:
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    else:
        yield "the node does not answer"
        return
    for path, expected in (("/", b"<html"), ("/static/page.css", b"{"), ("/static/htmx.min.js", b"htmx")):
        with urllib.request.urlopen(url + path, timeout=20) as answer:
            if expected not in answer.read():
                yield f"{path} has no {expected!r}"


def _free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens now."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def main() -> int:
    """Run all checks."""
    import canal_ha

    if (Path(str(canal_ha.__file__)).parents[1] / "setup.py").exists():
        print(f"installed: {canal_ha.__file__} is a checkout's; next: unset PYTHONPATH", file=sys.stderr)
        return 1
    faults = [fault for check in (version, kernel, data, node) for fault in check()]
    for fault in faults:
        print(f"installed: {fault}", file=sys.stderr)
    if not faults:
        print(f"canal-ha {metadata.version('canal-ha')}: compiled kernel, data and page work")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
