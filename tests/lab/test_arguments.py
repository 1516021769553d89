"""Wrong arguments of the runs in lab/ end them with an error, before anything starts."""

from __future__ import annotations

import sys

import pytest

import lab.chaos.__main__ as chaos
import lab.mutants.__main__ as mutants
import lab.simulation.__main__ as simulation


@pytest.mark.parametrize("arguments", [["--seeds", "-3"], ["--seeds", "0"], ["--workers", "0"], ["--seeds", "1.5"]])
def test_the_simulation_refuses_counts_below_one(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error in a script must not pass as a run without a violation."""
    monkeypatch.setattr(sys, "argv", ["simulation", *arguments])
    with pytest.raises(SystemExit) as ended:
        simulation.main()
    assert ended.value.code == 2
    assert "expected a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--minutes", "-1", "--schedule"], "expected a number above 0"),
        (["--slow", "0"], "expected a number above 0"),
        (["--first", "99", "--steps", "3", "--schedule"], "--first 99 is behind the last step, 3"),
    ],
)
def test_chaos_refuses_a_schedule_without_steps(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that harms nothing would show nothing."""
    with pytest.raises(SystemExit) as ended:
        chaos.main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_an_unknown_mutant_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The error names the unknown mutants alone, and where all are listed."""
    monkeypatch.setattr(sys, "argv", ["mutants", "lease too long", "claim"])
    with pytest.raises(SystemExit) as ended:
        mutants.main()
    assert ended.value.code == 2
    assert "unknown: claim; docs/guarantees.md lists all mutants" in capsys.readouterr().err
