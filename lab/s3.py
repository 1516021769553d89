"""S3Proxy from Maven Central's jars: a server of the S3 protocol, with signatures, that keeps objects as files.

It does not take the checksums that recent AWS libraries put behind the parts of an upload; clients in
`client_environment` send none.
"""

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as arrow_fs

from lab.ports import LOOPBACK, free_port
from lab.process import Process, StartFailed

_CACHE = Path(os.environ.get("CANAL_HA_CACHE", Path.home() / ".cache" / "canal-ha")) / "s3"
REGION = "us-east-1"
USER, SECRET = "canal", "canal-secret"
# Without a file, Logback writes hundreds of lines about each request.
_LOGBACK = """\
<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %-5level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="STDOUT"/></root>
</configuration>
"""


class S3(Process):
    """One server with its buckets in a temporary directory."""

    def __init__(self) -> None:
        super().__init__("s3", free_port())

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://{self.address}"

    @property
    def client_environment(self) -> dict[str, str]:
        """Variables with which AWS libraries reach it."""
        return {
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        }

    def files(self) -> arrow_fs.FileSystem:
        """Return its files; creating a directory at the top creates a bucket."""
        return arrow_fs.S3FileSystem(
            access_key=USER,
            secret_key=SECRET,
            endpoint_override=self.url,
            region=REGION,
            allow_bucket_creation=True,
        )

    def prepare(self) -> None:
        if not (_CACHE / "pom.xml").exists() or shutil.which("java") is None:
            raise StartFailed(f"{_CACHE} or java is missing; run: bash deploy/install.sh s3")
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        (self.directory / "logback.xml").write_text(_LOGBACK)
        (self.directory / "s3.conf").write_text(
            f"s3proxy.endpoint={self.url}\ns3proxy.authorization=aws-v2-or-v4\n"
            f"s3proxy.identity={USER}\ns3proxy.credential={SECRET}\n"
            f"jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={data}\n"
            "jclouds.identity=any\njclouds.credential=any\n"
        )

    def command(self) -> Sequence[str]:
        return [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            f"-Dlogback.configurationFile={self.directory}/logback.xml",
            "-cp",
            f"{_CACHE}/lib/*",
            "org.gaul.s3proxy.Main",
            "--properties",
            str(self.directory / "s3.conf"),
        ]

    def ready(self) -> bool:
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True
