"""The packages of the image: their list as a document, and what PyPI knows about them."""

from __future__ import annotations

import json
import subprocess

import pytest

from deploy.audit import UNANSWERED
from tests.test_locks import ROOT, locked

pytestmark = pytest.mark.long


@pytest.mark.parametrize("image", ["runtime", "spark"])
def test_the_document_names_each_package_of_the_image(image: str) -> None:
    """deploy/sbom.sh prints CycloneDX with the locked version and the hashes of each package."""
    text = subprocess.run(
        ["bash", "deploy/sbom.sh", image], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    document = json.loads(text)
    assert document["bomFormat"] == "CycloneDX"
    components = document["components"]
    assert {part["name"]: part["version"] for part in components} == {
        name: str(version) for name, version in locked(image).items()
    }
    assert all(part["externalReferences"][0]["hashes"] for part in components)


@pytest.mark.parametrize("image", ["runtime", "spark"])
def test_no_package_of_the_image_has_a_known_vulnerability(image: str) -> None:
    """deploy/audit.sh finds none. It is skipped if PyPI does not answer for each package."""
    done = subprocess.run(["bash", "deploy/audit.sh", image], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == UNANSWERED:
        pytest.skip(f"not audited: {(done.stdout or done.stderr).strip()}")
    assert done.returncode == 0, done.stdout + done.stderr
