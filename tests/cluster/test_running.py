"""The race of one node for one destination, event by event."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from canal_ha.cluster import inputs as i
from canal_ha.cluster.running import (
    FAILURE_FIRST_S,
    GRACE_S,
    HEAD_START_S,
    HOLD_BACK_S,
    LOOK_AGAIN_S,
    OFFER_S,
    Race,
    RaceState,
)
from canal_ha.cluster.spread import ORDERLY_STEP_S, VANISHED_STEP_S
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    RunningNode,
    SessionLost,
    SessionSuspended,
    SessionUp,
    StandingBy,
)

MINE, OTHER = 11, 22


class Player:
    """A race, its clock, its newest commands, and the answers to them."""

    def __init__(self) -> None:
        self.race = Race(lambda low, high: 40, "me")
        self.now = 100.0
        self.commands: list[i.Command] = []

    def tell(self, *events: i.Input) -> list[i.Command]:
        """Feed events, and return the commands of the last one."""
        for event in events:
            self.commands = self.race.step(event, self.now)
        return self.commands

    def last(self, kind: type) -> i.Command | None:
        """Return the last command of this type among the newest commands."""
        return next((command for command in reversed(self.commands) if isinstance(command, kind)), None)

    def sees(self, version: int | None, running: RunningNode | None) -> list[i.Command]:
        """Answer the newest Look."""
        look = self.last(Look)
        assert isinstance(look, Look)
        return self.tell(i.DestinationSeen(look.ticket, version, running))

    def claims(self, epoch: int) -> list[i.Command]:
        """Answer the newest Claim with success."""
        claim = self.last(i.ClaimDestination)
        assert isinstance(claim, i.ClaimDestination)
        return self.tell(i.Claimed(claim.ticket, epoch))

    def waits(self) -> float:
        """Let the newest Wait elapse."""
        wait = self.last(i.Wait)
        assert isinstance(wait, i.Wait)
        self.now += wait.delay_s
        self.tell(i.Elapsed(wait.ticket))
        return wait.delay_s


def joined() -> Player:
    """Return a race that is connected and looks."""
    player = Player()
    player.tell(Join(), SessionUp(MINE, 6.0))
    return player


def running(version: int = 4) -> Player:
    """Return a race that owns the destination at epoch version + 1, with watches set."""
    player = joined()
    player.sees(version, None)
    player.tell(i.Turn())
    player.claims(version + 1)
    player.sees(version + 1, RunningNode(MINE, 0, "me"))
    return player


def kinds(commands: Iterable[i.Command]) -> list[str]:
    """Return the type names of the commands."""
    return [type(command).__name__ for command in commands]


def test_a_free_destination_is_claimed_when_the_turn_comes() -> None:
    """The race looks, queues, claims at the version it saw, starts at the epoch of the claim, and watches."""
    player = joined()
    assert player.sees(4, None) == [i.WantTurn(ORDERLY_STEP_S)]
    (claim,) = player.tell(i.Turn())
    assert isinstance(claim, i.ClaimDestination)
    assert (claim.version, claim.jumps, claim.held, claim.leftover) == (4, 0, None, None)
    assert kinds(player.claims(5)) == ["StartInstance", "Look"]
    assert player.race.serving
    assert player.race.epoch == 5
    assert player.sees(5, RunningNode(MINE, 0, "me")) == []


@pytest.mark.parametrize("version", [None, 0])
def test_a_new_destination_jumps_to_an_epoch_that_never_was(version: int | None) -> None:
    """If the destination's node is missing or at version 0, the claim writes it a random number of further times."""
    player = joined()
    player.sees(version, None)
    (claim,) = player.tell(i.Turn())
    assert isinstance(claim, i.ClaimDestination)
    assert (claim.version, claim.jumps) == (version, 40)


def test_an_owner_is_who_holds_the_session_not_who_has_the_address() -> None:
    """`running` with our address but another session is another owner's: an earlier process of this node left it."""
    player = joined()
    assert player.sees(4, RunningNode(OTHER, 0, "me")) == [StandingBy("me")]
    assert player.race.state is RaceState.STANDBY


def test_a_claim_without_answer_is_looked_at() -> None:
    """The claim may have succeeded: if a look shows that `running` is ours, the race takes a new epoch with it."""
    player = joined()
    player.sees(4, None)
    (claim,) = player.tell(i.Turn())
    assert isinstance(claim, i.ClaimDestination)
    assert kinds(player.tell(i.ClaimFailed(claim.ticket, unknown=True))) == ["DropTurn", "Look"]
    (again,) = player.sees(5, RunningNode(MINE, 0, "me"))
    assert isinstance(again, i.ClaimDestination)
    assert (again.version, again.held) == (5, 0)


def test_what_an_earlier_session_of_this_process_left_is_replaced() -> None:
    """A claim replaces `running` of this process's earlier session without waiting for its expiry."""
    player = joined()
    player.tell(SessionLost(), SessionUp(33, 6.0))
    (claim,) = player.sees(4, RunningNode(MINE, 2, "me"))
    assert isinstance(claim, i.ClaimDestination)
    assert claim.leftover == 2


def test_answers_to_old_questions_are_not_heard() -> None:
    """The answer to a look has no effect if an event came after the question."""
    player = joined()
    look = player.last(Look)
    assert isinstance(look, Look)
    player.tell(NodeEvent(False))
    assert player.tell(i.DestinationSeen(look.ticket, 4, None)) == []


@pytest.mark.parametrize(
    ("version", "seen", "reason"),
    [
        (None, None, i.StopReason.RESET),
        (5, None, i.StopReason.VANISHED),
        (6, RunningNode(OTHER, 0, "other"), i.StopReason.TAKEN),
        (6, RunningNode(MINE, 0, "me"), i.StopReason.FENCED),
        (5, RunningNode(MINE, 1, "me", active=False), i.StopReason.OPERATOR),
    ],
)
def test_an_owner_steps_down_by_what_it_sees(
    version: int | None, seen: RunningNode | None, reason: i.StopReason
) -> None:
    """The instance is stopped at once when a look shows that ownership is gone or asked back."""
    player = running()
    player.tell(NodeEvent(False))
    assert player.sees(version, seen) == [i.StopInstance(reason)]
    assert not player.race.serving
    assert player.race.writing is reason.orderly


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (SessionLost(), i.StopReason.SESSION_LOST),
        (i.LeaseOver(), i.StopReason.LEASE_OVER),
        (i.EpochMismatch(), i.StopReason.FENCED),
        (SessionUp(77, 6.0), i.StopReason.SESSION_LOST),
    ],
)
def test_an_owner_steps_down_by_what_it_hears(event: i.Input, reason: i.StopReason) -> None:
    """A lost session, an ended lease, a wrong epoch and an unexpected new session stop the instance."""
    player = running()
    assert i.StopInstance(reason) in player.tell(event)
    assert not player.race.writing


def test_a_suspended_owner_goes_on_and_looks_when_it_is_back() -> None:
    """The instance runs on within the lease. The watches went with the connection, and a look sets them again."""
    player = running()
    assert player.tell(SessionSuspended()) == []
    assert player.race.serving
    assert kinds(player.tell(SessionUp(MINE, 6.0))) == ["Look"]


def test_a_standby_whose_connection_was_replaced_unnoticed_looks_again() -> None:
    """The session is up again without a suspension: the deletion of `running` may have been told to nobody."""
    player = joined()
    player.sees(4, RunningNode(OTHER, 0, "other"))
    assert player.race.state is RaceState.STANDBY
    assert "Look" in kinds(player.tell(SessionUp(MINE, 6.0)))
    player.sees(4, RunningNode(OTHER, 0, "other"))
    assert player.race.state is RaceState.STANDBY


def test_an_orderly_leave_flushes_and_releases() -> None:
    """The instance is stopped, then the destination is released at the epoch, then the leave ends."""
    player = running()
    assert player.tell(Leave()) == [i.StopInstance(i.StopReason.SHUTDOWN)]
    (release,) = player.tell(i.InstanceStopped())
    assert isinstance(release, i.ReleaseDestination)
    assert release.epoch == 5
    player.tell(Released(release.ticket))
    assert Left() in player.sees(5, None)


def test_a_leave_without_zookeeper_ends_all_the_same() -> None:
    """A leave while ZooKeeper is away releases nothing; the end of the session does."""
    player = running()
    player.tell(SessionSuspended(), Leave())
    assert Left() in player.tell(i.InstanceStopped())


def test_a_leave_whose_look_failed_can_be_taken_back() -> None:
    """A failed look ends the leave. A join over the same connection looks at once."""
    player = joined()
    look = player.last(Look)
    assert isinstance(look, Look)
    player.tell(Leave())
    assert Left() in player.tell(i.LookFailed(look.ticket))
    assert "Look" in kinds(player.tell(Join()))


def test_a_leave_while_claiming_releases_what_was_won() -> None:
    """When the claim succeeds, the destination is released and the instance is not started."""
    player = joined()
    player.sees(4, None)
    player.tell(i.Turn())
    claim = player.last(i.ClaimDestination)
    player.tell(Leave())
    player.commands = [claim] if claim else []
    assert kinds(player.claims(5)) == ["ReleaseDestination"]


def test_after_an_operators_release_this_node_stands_back() -> None:
    """The node races again only after HOLD_BACK_S, so that any other node comes first."""
    player = running()
    player.tell(i.HandOver())
    (release,) = player.tell(i.InstanceStopped())
    assert isinstance(release, i.ReleaseDestination)
    player.tell(Released(release.ticket))
    player.sees(5, None)
    assert player.waits() == HOLD_BACK_S
    assert player.sees(5, None) == [i.WantTurn(ORDERLY_STEP_S)]


def test_an_instance_that_fails_backs_off_longer_each_time() -> None:
    """The pause doubles with each failure, up to 60 s, so that one bad event does not go round the cluster quickly."""
    player = running()
    for round_ in range(8):
        player.tell(i.InstanceFailed())
        (release,) = player.tell(i.InstanceStopped())
        assert isinstance(release, i.ReleaseDestination)
        player.tell(Released(release.ticket))
        player.sees(5, None)
        assert player.waits() == min(60.0, FAILURE_FIRST_S * 2**round_)
        player.sees(5, None)
        player.tell(i.Turn())
        player.claims(5)


def test_an_orderly_release_of_another_is_followed_at_once_a_crash_a_little_later() -> None:
    """After a change of `running` the race queues at once, with short steps. After its deletion it waits, in case a
    deleteall is under way, and queues with long steps.
    """
    for deleted, step_s in ((False, ORDERLY_STEP_S), (True, VANISHED_STEP_S)):
        player = joined()
        player.sees(4, RunningNode(OTHER, 0, "other"))
        player.tell(NodeEvent(deleted))
        player.sees(4, None)
        if deleted:
            assert player.waits() == pytest.approx(GRACE_S)
            player.sees(4, None)
        assert player.commands == [i.WantTurn(step_s)]


@pytest.mark.parametrize("session", [MINE, MINE + 1])
def test_a_node_that_never_saw_the_owner_lets_it_claim_first_after_a_reconnect(session: int) -> None:
    """The owner knows newer cursors than an ensemble that was restored from a backup."""
    player = joined()
    look = player.last(Look)  # the connection breaks before this look is answered
    player.tell(SessionSuspended())
    player.now += 1.0
    player.tell(SessionUp(session, 6.0))
    assert player.last(Look) != look
    player.sees(4, None)
    assert player.waits() == HEAD_START_S
    player.sees(4, None)
    assert player.last(i.WantTurn) == i.WantTurn(VANISHED_STEP_S)


def test_a_session_that_is_told_twice_is_no_reconnect() -> None:
    """The first claim of a destination waits for its turn only."""
    player = joined()
    look = player.last(Look)
    assert isinstance(look, Look)
    player.tell(SessionUp(MINE, 6.0), i.DestinationSeen(look.ticket, 4, None))
    assert player.last(i.WantTurn) == i.WantTurn(ORDERLY_STEP_S)


def test_ownership_that_goes_while_stopping_in_good_order_is_not_released() -> None:
    """A wrong epoch during an orderly stop ends the right to write, and nothing is released."""
    player = running()
    player.tell(Leave())
    before = player.race.writing
    player.tell(i.EpochMismatch())
    assert (before, player.race.writing) == (True, False)
    assert kinds(player.tell(i.InstanceStopped())) == ["DropTurn", "Look"]


def test_an_emptied_ensemble() -> None:
    """If a new session finds the destination at version 0, its former owner claims at once and restores the cursors.

    Other nodes wait.
    """
    player = running()
    player.tell(i.LeaseOver(), i.InstanceStopped(), SessionLost(), SessionUp(33, 6.0))
    (claim,) = player.sees(0, None)
    assert isinstance(claim, i.ClaimDestination)
    assert player.claims(9)[0] == i.StartInstance(9, restore=True)

    other = joined()
    other.sees(4, RunningNode(OTHER, 0, "other"))
    other.tell(SessionLost(), SessionUp(33, 6.0))
    other.sees(None, None)
    assert other.waits() == 6.0


def emptied() -> Player:
    """Return a race whose ensemble came back empty, and that has claimed the destination to restore the cursors."""
    player = running()
    player.tell(i.LeaseOver(), i.InstanceStopped(), SessionLost(), SessionUp(33, 6.0))
    player.sees(0, None)
    assert player.claims(9)[0] == i.StartInstance(9, restore=True)
    player.sees(9, RunningNode(33, 0, "me"))
    return player


def test_cursors_are_restored_again_if_the_connection_broke_meanwhile() -> None:
    """The restore counts once its cursors are written, also over a new session, and only once."""
    player = emptied()
    player.tell(SessionSuspended(), SessionLost(), i.InstanceStopped(), SessionUp(44, 6.0))
    player.sees(9, None)
    assert player.claims(10)[0] == i.StartInstance(10, restore=True)
    player.tell(i.CursorsLoaded(), SessionLost(), i.InstanceStopped(), SessionUp(55, 6.0))
    player.sees(10, None)
    player.waits()
    player.sees(10, None)
    player.tell(i.Turn())
    assert player.claims(11)[0] == i.StartInstance(11, restore=False)


def test_a_destination_whose_cursors_are_not_restored_yet_is_not_released() -> None:
    """An instance that failed while it restored begins again on the node that knows the cursors."""
    player = emptied()
    player.tell(i.InstanceFailed())
    assert kinds(player.tell(i.InstanceStopped())) == ["DropTurn", "Look"]
    player.sees(9, RunningNode(33, 0, "me"))
    assert player.waits() == FAILURE_FIRST_S
    (claim,) = player.sees(9, RunningNode(33, 0, "me"))
    assert isinstance(claim, i.ClaimDestination)
    assert player.claims(10)[0] == i.StartInstance(10, restore=True)
    player.tell(i.CursorsLoaded(), i.InstanceFailed())
    assert kinds(player.tell(i.InstanceStopped())) == ["ReleaseDestination"]


def test_a_restore_that_did_not_succeed_ends_with_a_reset_or_another_owner() -> None:
    """What a person removed stays removed, and what another owner has begun goes on."""
    player = emptied()
    player.tell(NodeEvent(True))
    player.sees(None, None)
    player.tell(i.InstanceStopped())
    player.sees(None, None)
    player.waits()
    player.sees(None, None)
    player.tell(i.Turn())
    assert player.claims(12)[0] == i.StartInstance(12, restore=False)

    player = emptied()
    player.tell(NodeEvent(True))
    player.sees(10, RunningNode(OTHER, 0, "other"))
    player.tell(i.InstanceStopped())
    player.sees(10, RunningNode(OTHER, 0, "other"))
    player.tell(NodeEvent(True))
    player.sees(10, None)
    player.waits()
    player.sees(10, None)
    player.tell(i.Turn())
    assert player.claims(11)[0] == i.StartInstance(11, restore=False)


def test_a_destination_handed_over_before_its_cursors_are_restored_is_released() -> None:
    """A person asked for it, so this node stands back as always."""
    player = emptied()
    player.tell(i.HandOver())
    assert kinds(player.tell(i.InstanceStopped())) == ["ReleaseDestination"]
    (release,) = player.commands
    assert isinstance(release, i.ReleaseDestination)
    player.tell(Released(release.ticket))
    player.sees(9, None)
    assert player.waits() == HOLD_BACK_S


def test_a_destination_reset_by_a_person_is_not_put_back() -> None:
    """If the destination is deleted within a session, a person did it: the cursors are not restored."""
    player = running()
    player.tell(NodeEvent(True))
    player.sees(None, None)
    player.tell(i.InstanceStopped())
    player.sees(None, None)
    player.waits()
    player.sees(None, None)
    player.tell(i.Turn())
    assert player.claims(9)[0] == i.StartInstance(9, restore=False)


def test_an_owner_offers_the_destination_to_the_chosen_successor() -> None:
    """It stops in good order, and `running` stays until the successor has replaced it."""
    player = running(4)
    player.tell(NodeEvent(False))
    player.sees(5, RunningNode(MINE, 1, "me", successor="other"))
    assert player.commands == [i.StopInstance(i.StopReason.HAND_OVER)]
    (offer,) = player.tell(i.InstanceStopped())
    assert isinstance(offer, i.OfferDestination)
    assert (offer.epoch, offer.successor) == (5, "other")
    player.tell(Released(offer.ticket))
    (wait,) = player.sees(5, RunningNode(MINE, 2, "me", active=False, successor="other"))
    assert isinstance(wait, i.Wait)
    assert wait.delay_s == OFFER_S
    player.tell(NodeEvent(True))
    assert player.sees(6, RunningNode(OTHER, 0, "other")) == [StandingBy("other")]


def test_what_the_successor_does_not_take_is_released_to_any_node() -> None:
    """The owner waits OFFER_S for it, and then races again only after the others."""
    player = running(4)
    player.tell(NodeEvent(False))
    player.sees(5, RunningNode(MINE, 1, "me", successor="other"))
    (offer,) = player.tell(i.InstanceStopped())
    assert isinstance(offer, i.OfferDestination)
    player.tell(Released(offer.ticket))
    player.sees(5, RunningNode(MINE, 2, "me", active=False, successor="other"))
    assert player.waits() == OFFER_S
    (release,) = player.sees(5, RunningNode(MINE, 2, "me", active=False, successor="other"))
    assert isinstance(release, i.ReleaseDestination)
    player.tell(Released(release.ticket))
    (wait,) = player.sees(5, None)
    assert wait == i.Wait(wait.ticket, HOLD_BACK_S - OFFER_S)  # type: ignore[union-attr]  # it is a Wait


def test_the_successor_replaces_running_in_its_claim() -> None:
    """It needs no turn, and another node that sees the same offer stands by."""
    player = joined()
    standing, claim = player.sees(5, RunningNode(OTHER, 2, "other", active=False, successor="me"))
    assert standing == StandingBy("other")
    assert isinstance(claim, i.ClaimDestination)
    assert (claim.version, claim.leftover) == (5, 2)
    other = joined()
    assert other.sees(5, RunningNode(OTHER, 2, "other", active=False, successor="third")) == [StandingBy("other")]


def test_a_successor_waits_until_the_owner_has_stopped() -> None:
    """While the owner is active, its cursors are not flushed."""
    player = joined()
    assert player.sees(5, RunningNode(OTHER, 1, "other", successor="me")) == [StandingBy("other")]


def let_go(why: i.InstanceFailed | i.HandOver) -> Player:
    """Return a race that ran the destination and has released it."""
    player = running(4)
    player.tell(why)
    (release,) = player.tell(i.InstanceStopped())
    assert isinstance(release, i.ReleaseDestination)
    player.tell(Released(release.ticket))
    return player


def test_a_node_on_which_the_instance_failed_takes_no_offer() -> None:
    """It stands back for as long as after any failure."""
    player = let_go(i.InstanceFailed())
    offered = RunningNode(OTHER, 2, "other", active=False, successor="me")
    assert player.sees(6, offered) == [StandingBy("other")]


def stands_back() -> Player:
    """Return a race that an operator made release the destination, which another node then claimed."""
    player = let_go(i.HandOver())
    player.sees(6, RunningNode(OTHER, 0, "other"))
    player.tell(NodeEvent(False))
    return player


def test_a_node_that_stands_back_takes_a_destination_that_is_handed_to_it() -> None:
    """Whoever names the node asks later than who made it stand back."""
    player = stands_back()
    assert player.sees(6, RunningNode(OTHER, 1, "other", successor="me")) == [StandingBy("other")]
    player.tell(NodeEvent(False))
    _, claim = player.sees(6, RunningNode(OTHER, 2, "other", active=False, successor="me"))
    assert isinstance(claim, i.ClaimDestination)
    assert claim.leftover == 2
    assert kinds(player.claims(7)) == ["StartInstance", "Look"]


def test_a_node_that_stood_back_keeps_a_destination_whose_claim_got_no_answer() -> None:
    """It finds that the destination is its own, and does not release it as one that still stands back would."""
    player = stands_back()
    _, claim = player.sees(6, RunningNode(OTHER, 2, "other", active=False, successor="me"))
    assert isinstance(claim, i.ClaimDestination)
    player.tell(i.ClaimFailed(claim.ticket, unknown=True))
    (again,) = player.sees(7, RunningNode(MINE, 0, "me"))
    assert isinstance(again, i.ClaimDestination)
    assert again.held == 0


def test_an_owner_that_shuts_down_during_a_hand_over_releases_to_any_node() -> None:
    """Its stop does not wait for the successor."""
    player = running(4)
    player.tell(NodeEvent(False))
    player.sees(5, RunningNode(MINE, 1, "me", successor="other"))
    player.tell(Leave())
    (release,) = player.tell(i.InstanceStopped())
    assert isinstance(release, i.ReleaseDestination)


def paused(player: Player, version: int, seen: RunningNode | None) -> list[i.Command]:
    """Answer the newest Look: the destination is paused."""
    look = player.last(Look)
    assert isinstance(look, Look)
    return player.tell(i.DestinationSeen(look.ticket, version, seen, paused=True))


def test_an_owner_stops_a_paused_destination_in_good_order_and_claims_it_when_it_is_resumed() -> None:
    """It releases the destination, does not race while the pause lasts, and then needs only a turn."""
    player = running(4)
    player.tell(NodeEvent(False))
    assert paused(player, 5, RunningNode(MINE, 0, "me")) == [i.StopInstance(i.StopReason.PAUSED)]
    (release,) = player.tell(i.InstanceStopped())
    assert isinstance(release, i.ReleaseDestination)
    player.tell(Released(release.ticket))
    assert paused(player, 5, None) == []
    assert player.race.state is RaceState.PAUSED
    player.tell(NodeEvent(True))
    assert player.sees(5, None) == [i.WantTurn(ORDERLY_STEP_S)]


def test_a_node_that_starts_does_not_claim_a_paused_destination() -> None:
    """Not even what an earlier session of this process left."""
    player = joined()
    assert paused(player, 4, None) == []
    player.tell(SessionLost(), SessionUp(33, 6.0))
    assert paused(player, 4, RunningNode(MINE, 2, "me")) == []
    assert player.tell(Leave())[-1] == Left()


def test_a_paused_destination_is_not_taken_from_its_owner() -> None:
    """The offer of an owner that was paused meanwhile goes to nobody."""
    player = joined()
    offered = RunningNode(OTHER, 2, "other", active=False, successor="me")
    assert paused(player, 4, offered) == [StandingBy("other")]


def test_cursors_that_only_this_node_knows_are_restored_before_a_pause() -> None:
    """The pause begins once they are loaded."""
    player = running(4)
    player.tell(SessionLost())
    player.tell(i.InstanceStopped())
    player.tell(SessionUp(33, 6.0))
    (claim,) = paused(player, 0, None)
    assert isinstance(claim, i.ClaimDestination)
    start, _ = player.tell(i.Claimed(claim.ticket, 41))
    assert start == i.StartInstance(41, restore=True)
    assert paused(player, 41, RunningNode(33, 0, "me")) == []
    player.tell(i.CursorsLoaded())
    assert paused(player, 41, RunningNode(33, 0, "me")) == [i.StopInstance(i.StopReason.PAUSED)]


def test_an_owner_corrects_running_that_names_another_node() -> None:
    """Clients follow the address. A request to hand over to the owner itself goes with it; one to another is met."""
    player = running(4)
    for successor in ("", "me"):
        player.now += 10.0
        player.tell(NodeEvent(False))
        rewrite, _ = player.sees(5, RunningNode(MINE, 1, "other", successor=successor))
        assert rewrite == i.RewriteRunning(5, 1)
        player.tell(NodeEvent(False))
        assert player.sees(5, RunningNode(MINE, 2, "me")) == []
    player.tell(NodeEvent(False))
    assert player.sees(5, RunningNode(MINE, 3, "other", successor="third")) == [i.StopInstance(i.StopReason.HAND_OVER)]


def test_an_owner_corrects_running_again_only_after_a_pause() -> None:
    """A correction without effect, or a program that writes another address again and again, costs little."""
    player = running(4)
    player.tell(NodeEvent(False))
    player.sees(5, RunningNode(MINE, 1, "other"))
    began, rewrites = player.now, 0
    for version in range(2, 12):
        assert player.waits() > 0.0
        player.sees(5, RunningNode(MINE, version, "other"))
        rewrites += player.last(i.RewriteRunning) is not None
        player.tell(NodeEvent(False))
        assert kinds(player.sees(5, RunningNode(MINE, version, "other"))) == ["Wait"]
    assert rewrites == 10
    assert player.now - began == pytest.approx(10 * LOOK_AGAIN_S)
