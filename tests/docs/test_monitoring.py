"""Alert rules, dashboard and runbooks fit together, and name metrics that a node has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from docs.generate import metrics

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy/monitoring"
RULES = (MONITORING / "alerts.yaml").read_text()
TESTS = (MONITORING / "alerts_test.yaml").read_text()
BOARD = (MONITORING / "dashboard.json").read_text()
RUNBOOKS = {f"docs/runbooks/{page.name}" for page in (ROOT / "docs/runbooks").glob("*.md")} - {"docs/runbooks/index.md"}


def test_every_metric_that_is_named_exists() -> None:
    """A panel or a rule about a metric without samples would show nothing, for ever."""
    known = {family.name for family in metrics.families()}
    for text in (RULES, TESTS, BOARD):
        assert set(re.findall(r"\bcanal_\w+", text)) <= known


def test_every_alert_leads_to_a_runbook_that_names_it() -> None:
    """Each rule has a page, and the page says by which alerts its trouble shows."""
    rules = re.findall(r"- alert: (\w+)\n(?:(?!- alert).*\n)*? +runbook: (\S+)\n", RULES)
    assert len(rules) == RULES.count("- alert: ")
    for alert, runbook in rules:
        assert runbook in RUNBOOKS
        assert f"`{alert}`" in (ROOT / runbook).read_text(), alert


def test_every_runbook_says_how_it_shows_where_to_look_and_what_to_do() -> None:
    """They are read at three in the morning."""
    for runbook in RUNBOOKS:
        text = (ROOT / runbook).read_text()
        assert "**Symptom.**" in text
        assert re.findall("^## (.*)", text, re.MULTILINE) == ["Look", "Do"], runbook


def test_the_dashboard_has_panels_with_places_of_their_own() -> None:
    """No panel covers another one."""
    panels = json.loads(BOARD)["panels"]
    taken = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) == 23
    assert len({panel["id"] for panel in panels}) == len(panels) > 15
