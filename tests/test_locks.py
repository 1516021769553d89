"""deploy/locks: the versions and hashes of all that pip installs for the images, the checks and the tools."""

from __future__ import annotations

import configparser
import re
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
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
    found = requirements_of(name)
    return {canonicalize_name(each.name): Version(str(each.specifier).removeprefix("==")) for each in found}


def requirements_of(name: str) -> list[Requirement]:
    """Return what a lock names, one requirement a package."""
    return [Requirement(line.removesuffix("\\").strip()) for line in pins(name)]


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
    pin = r"[\w.-]+(?:\[[\w, -]+\])?==\S+"
    hashes = r"(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+"
    entries = re.findall(rf"^({pin})(?: ; [^\\\n]+)? \\\n{hashes}", text, re.M)
    assert entries == [re.split(r" ;| \\", line)[0] for line in pins(name)]
    assert entries
    assert not re.search(r"^ *--(?!hash=)|://|@ ", text, re.MULTILINE)


@pytest.mark.parametrize("name", PROJECT)
def test_an_old_lock_installs_after_a_package_has_a_new_release(name: str) -> None:
    """A pin has each extra that another package of the lock requires; see deploy/lock.sh."""
    pinned = {canonicalize_name(each.name): each for each in requirements_of(name)}
    for package in pinned:
        with suppress(PackageNotFoundError):  # it is not for this system or this environment
            for required in map(Requirement, requires(package) or ()):
                pin = pinned.get(canonicalize_name(required.name))
                if pin and (required.marker is None or required.marker.evaluate({"extra": ""})):
                    assert required.extras <= pin.extras, f"{package} requires {required}; run: bash deploy/lock.sh"


@pytest.mark.parametrize("file", ["Dockerfile", "Dockerfile.spark"])
def test_pip_takes_nothing_into_an_image_but_what_the_lock_names(file: str) -> None:
    """Each `pip` of a Dockerfile checks hashes, installs the checkout without dependencies, or reaches no index."""
    text = (ROOT / "deploy" / file).read_text().replace("\\\n", " ")
    commands = [part for part in re.split(r"&&|\n", text) if re.search(r"\bpip (install|wheel)\b", part)]
    assert len(commands) > 1
    for command in commands:
        assert re.search(r"--require-hashes|--no-deps|--no-index", command), command
        assert "--no-index" in command or "--no-build-isolation" in command or "build.txt" in command, command
