"""deploy/locks: the versions and hashes of all that pip installs for the images, the checks and the tools."""

from __future__ import annotations

import configparser
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "deploy" / "locks"
OF_EXTRA = {
    "dev": "dev",
    "docs": "docs",
    "browser": "browser",
    "spark": "spark",
    "pipeline": "pipeline",
    "arrow": "spark",
    "sasl": "dev",
}
PROJECT = (
    "build",
    "runtime",
    "dev",
    "docs",
    "browser",
    "spark",
    "pipeline",
)  # installed side by side; the tools have their own environment


def locked(name: str) -> dict[str, Version]:
    """Return the version of each package of a lock."""
    requirements = [Requirement(line.removesuffix("\\").strip()) for line in pins(name)]
    return {canonicalize_name(found.name): Version(str(found.specifier).removeprefix("==")) for found in requirements}


def pins(name: str) -> list[str]:
    """Return the lines of a lock that name a package."""
    lines = (LOCKS / f"{name}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("#", " "))]


def wanted() -> dict[str, list[str]]:
    """Return the requirements that each lock has to satisfy."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = dict(setup["options.extras_require"])
    assert set(extras) == set(OF_EXTRA), "name the lock of the new extra"
    found = {name: setup["options"]["install_requires"].split("\n")[1:] for name in PROJECT if name != "build"}
    for extra, text in extras.items():
        found[OF_EXTRA[extra]] += text.split("\n")[1:]
    found["build"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    found["tools"] = [line for line in (LOCKS / "tools.in").read_text().splitlines() if not line.startswith("#")]
    return found


@pytest.mark.parametrize("name", [*PROJECT, "tools"])
def test_a_lock_has_a_fitting_version_of_each_requirement(name: str) -> None:
    """After a change of the requirements, deploy/lock.sh has to write the lock again."""
    versions = locked(name)
    for text in wanted()[name]:
        requirement = Requirement(text)
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{text} is not in deploy/locks/{name}.txt; run: bash deploy/lock.sh"
        assert version in requirement.specifier, f"{text}, but the lock has {version}; run: bash deploy/lock.sh"


def test_the_images_get_the_versions_that_the_checks_use() -> None:
    """No package has two versions in the locks of the project."""
    versions: dict[str, set[Version]] = {}
    for name in PROJECT:
        for package, version in locked(name).items():
            versions.setdefault(package, set()).add(version)
    assert {package: found for package, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", [*PROJECT, "tools"])
def test_a_lock_pins_each_package_with_hashes_and_holds_on_every_machine(name: str) -> None:
    """Each package has one version and SHA-256 hashes. No line names an index, a directory or an address."""
    text = (LOCKS / f"{name}.txt").read_text()
    entries = re.findall(r"^(\S+==\S+)(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    assert [pin for pin, _ in entries] == [line.split()[0] for line in pins(name)]
    assert entries
    assert not re.search(r"^ *--(?!hash=)|://|@ ", text, re.MULTILINE)


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.spark"])
def test_pip_takes_nothing_into_an_image_but_what_the_lock_names(file: str) -> None:
    """Each `pip` of a Dockerfile checks hashes, installs the checkout without dependencies, or reaches no index."""
    text = (ROOT / "deploy" / file).read_text().replace("\\\n", " ")
    commands = [part for part in re.split(r"&&|\n", text) if re.search(r"\bpip (install|wheel)\b", part)]
    assert len(commands) > 1
    for command in commands:
        assert re.search(r"--require-hashes|--no-deps|--no-index", command), command
        assert "--no-index" in command or "--no-build-isolation" in command or "build.txt" in command, command
