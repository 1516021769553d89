"""deploy/Dockerfile, built by buildah on a stand-in for its base image: it needs neither Docker nor a registry."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.checkout import ROOT

pytestmark = pytest.mark.long

ADDED_MB = 120
"""What the image may add to its base: canal-ha with its packages."""


class Image:
    """The image that deploy/build-image.sh has built, and a container of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        done = subprocess.run(
            ["bash", "deploy/build-image.sh", str(directory)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        self.container = self.buildah("from", "--pull-never", "canal-ha").strip()
        self.root = Path(self.buildah("mount", self.container).strip())

    def buildah(self, *arguments: str) -> str:
        """Run buildah; return its output."""
        storage = ("--root", str(self.directory / "storage"), "--runroot", str(self.directory / "run"))
        command = ["buildah", *storage, "--storage-driver", "vfs", *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *command: str) -> str:
        """Run a command in the container as the image's user."""
        return self.buildah("run", "--isolation", "chroot", self.container, "--", *command)

    def configuration(self) -> dict[str, Any]:
        """Return what the image says of itself."""
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", "canal-ha"))["Docker"]["config"]
        return found


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    if os.geteuid():
        pytest.skip("buildah and debootstrap need root here")
    directory = tmp_path_factory.mktemp("image")
    built = Image(directory)
    yield built
    built.buildah("umount", "--all")
    built.buildah("rm", "--all")
    shutil.rmtree(directory, ignore_errors=True)


def test_every_step_of_the_dockerfile_works_and_the_result_serves_a_page(image: Image) -> None:
    """The kernel is compiled, and the check of an installed canal-ha passes, as a user who is not root."""
    shutil.copy(ROOT / "deploy/installed.py", image.root / "tmp" / "installed.py")
    assert image.run("id", "-u").strip() == "10111"
    assert "compiled kernel, data and page work" in image.run("python", "/tmp/installed.py")
    assert "example" in image.run("ls", "/canal/conf")


def test_the_image_has_no_compiler_of_its_own_and_says_how_to_run_it(image: Image) -> None:
    """The stage that compiles is left behind. User, stop signal and health check are in the image's configuration."""
    found = image.configuration()
    assert (found["User"], found["StopSignal"]) == ("canal", "SIGTERM")
    assert found["Entrypoint"] == ["canal-ha"]
    assert "/healthz" in " ".join(found["Healthcheck"]["Test"])
    assert not any((image.root / "usr/bin" / name).exists() for name in ("gcc", "cc"))
    assert (image.root / "usr/bin/env").exists()
    assert not (image.root / "wheels").exists() or not list((image.root / "wheels").iterdir())
    assert not (image.root / "src").exists()


def test_the_image_adds_little_to_its_base(image: Image) -> None:
    """No cache of pip, no sources of the build."""
    before, after = (megabytes(path) for path in (image.directory / "base", image.root))
    assert after - before < ADDED_MB, f"{after - before:.0f} MB"


def megabytes(root: Path) -> float:
    """Return the size of all files below a directory."""
    files = (Path(directory) / name for directory, _, names in os.walk(root) for name in names)
    return sum(file.lstat().st_size for file in files) / 1e6
