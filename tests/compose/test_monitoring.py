"""Prometheus' own checker reads the alert rules and runs their tests."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.mysql import cache_directory

pytestmark = pytest.mark.real

MONITORING = Path(__file__).parents[2] / "deploy/monitoring"


def promtool(*arguments: str) -> str:
    """Run promtool in the directory of the rules; return its output."""
    program = shutil.which("promtool") or str(cache_directory() / "promtool")
    done = subprocess.run([program, *arguments], cwd=MONITORING, capture_output=True)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output


def test_prometheus_reads_the_rules_and_they_do_what_their_tests_say() -> None:
    """Each alert fires for the case that it is for, and ends."""
    assert "rules found" in promtool("check", "rules", "alerts.yaml")
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yaml")


def test_prometheus_accepts_the_configuration_in_the_head_of_the_rules(tmp_path: Path) -> None:
    """It scrapes the job by whose name the rules find the nodes."""
    rules = (MONITORING / "alerts.yaml").read_text()
    head = "".join(re.findall("^#   (.*\n)", rules, re.MULTILINE))
    config = tmp_path / "prometheus.yml"
    config.write_text(f"rule_files: [{MONITORING / 'alerts.yaml'}]\n{head}")
    assert "rules found" in promtool("check", "config", str(config))
    assert "job_name: canal-ha\n" in head
    assert set(re.findall('job="([^"]+)"', rules)) == {"canal-ha"}
