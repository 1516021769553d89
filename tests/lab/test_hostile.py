"""The attack suite on a real cluster: a short run reaches nothing, and the suite notices what an attack reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lab.hostile import requests
from lab.hostile.__main__ import ATTACKS
from lab.hostile.attack import Assault, Attack, Outcome, carry_out
from lab.hostile.stage import INSIDER_IDS, VICTIM_ID, Stage
from lab.waiting import until

pytestmark = pytest.mark.real

SCALE = 0.003
SLOW = 10.0  # other tests share the processors; `python -m lab.hostile` judges the limits of time
PAUSE_S = 1.5


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as running:
        yield running


def carried_out(attack: Attack, stage: Stage, slow: float = SLOW) -> Outcome:
    """Run an attack and print its line."""
    outcome = carry_out(attack, stage, SCALE, seed=1, slow=slow)
    print(outcome.text())
    return outcome


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_reaches_nothing(stage: Stage, attack: Attack) -> None:
    """The victim gets all of its rows, the node does not grow, and no request without a right is answered."""
    assert not carried_out(attack, stage).broken


def test_a_node_that_stands_still_is_noticed(stage: Stage) -> None:
    """The victim's row comes too late when an attack stops the node."""

    def pause(assault: Assault) -> None:
        assault.target.pause()
        time.sleep(PAUSE_S)
        assault.target.resume()

    outcome = carried_out(Attack("pause", "stops the node", pause), stage, slow=0.5)
    assert any("the victim waited" in what for what in outcome.broken)


def test_an_account_with_a_right_too_many_is_noticed(stage: Stage) -> None:
    """The theft succeeds when the accounts file gives the attacker the victim's client id."""
    own = f'["{INSIDER_IDS[0]}-{INSIDER_IDS[-1]}"]'
    for node in stage.nodes:
        file = node.conf / "accounts.toml"
        file.write_text(file.read_text().replace(own, f"[{VICTIM_ID}, {own[1:]}"))

    def thief() -> bool:
        assault = Assault(stage, stage.owner, SCALE, seed=1)
        requests.theft(assault)
        return "insider may send SUBSCRIPTION" in assault.broken

    until(thief, what="a broken promise")  # the nodes read the file when it is a second old
