"""A Spark Connect server of the installed PySpark, in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.ports import free_port, listens
from lab.process import Process
from tests.spark.archive import jvm_options
from tests.spark.running import ROOT

PROGRAMS = Path(sys.executable).parent


class ConnectServer(Process):
    """It serves sc://127.0.0.1:PORT. The package is on its Python path, as a server's administrator installs it."""

    start_timeout_s = 180.0

    def __init__(self) -> None:
        super().__init__("spark-connect", free_port())

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"sc://{self.address}"

    def command(self) -> Sequence[str]:
        settings = {
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": f"{self.directory}/warehouse",
            "spark.driver.extraJavaOptions": jvm_options(),
            "spark.driver.memory": "700m",
        }
        lines = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        server = "org.apache.spark.sql.connect.service.SparkConnectServer"
        return [str(PROGRAMS / "spark-submit"), "--class", server, "--master", "local[1]", *lines]

    def environment(self) -> Mapping[str, str]:
        return python_path()

    def ready(self) -> bool:
        return listens(self.port)


def python_path() -> dict[str, str]:
    """Return the environment of Spark's programs, which start this Python."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
