"""Which destinations move, so that all nodes run about as many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.cluster.placement import Placed, PlannedMove, plan

NODES = ("a", "b", "c")


def placed(owners: Iterable[str], members: Iterable[str] = NODES) -> list[Placed]:
    """Return destinations that any of the members can take, with these owners; the first was claimed first."""
    return [Placed(f"d{number}", owner, number, dict.fromkeys(members, True)) for number, owner in enumerate(owners)]


def after(before: list[Placed]) -> list[Placed]:
    """Return the destinations where a plan puts them."""
    moved = {move.destination: move.moved_to for move in plan(before)}
    return [
        Placed(each.destination, moved.get(each.destination, each.owner), each.since, each.members, each.others)
        for each in before
    ]


def test_sixty_destinations_are_even_after_a_node_came_back() -> None:
    """The node that came back gets its third with 20 moves, 10 from each of the others."""
    moves = plan(placed(["a"] * 30 + ["b"] * 30))
    assert Counter(move.moved_from for move in moves) == {"a": 10, "b": 10}
    assert {move.moved_to for move in moves} == {"c"}


def test_a_difference_of_one_moves_nothing() -> None:
    """A move would only exchange the roles of the two nodes."""
    assert plan(placed("aabbc")) == ()


def test_what_runs_longest_moves_first() -> None:
    """What was just moved or taken over stays."""
    assert plan(placed("aaabb", "ab")) == ()
    assert plan(placed("aaab", "ab")) == (PlannedMove("d0", "a", "b"),)


def test_a_preference_goes_before_even_numbers() -> None:
    """A destination moves to a node that it prefers, and never from there to one that it does not."""
    before = [
        *(Placed(f"d{number}", "a", number, {"a": True, "b": False}) for number in range(4)),
        Placed("other", "b", 9, {"a": True, "b": False}),
        Placed("free", "a", 10, {"a": True, "b": True}),
    ]
    assert set(plan(before)) == {PlannedMove("other", "b", "a"), PlannedMove("free", "a", "b")}


def test_a_preference_that_no_living_node_has_does_not_matter() -> None:
    """The destination is placed as if it had none."""
    before = [Placed(f"d{number}", "a", number, {"a": False, "b": False}) for number in range(4)]
    assert [move.moved_to for move in plan(before)] == ["b", "b"]


def test_java_nodes_are_left_alone() -> None:
    """What a Java node runs does not move, and nothing moves to it."""
    before = [Placed(f"j{number}", "java", number, {"a": True, "b": True}, ("java",)) for number in range(9)]
    assert plan(before) == ()
    before += [Placed(f"d{number}", "a", number, {"a": True, "b": True}, ("java",)) for number in range(2)]
    assert plan(before) == (PlannedMove("d0", "a", "b"),)


def test_what_is_paused_or_runs_nowhere_does_not_move() -> None:
    """Nobody hands it over."""
    members = {"a": True, "b": True}
    assert plan([Placed("x", "", 1, members), *(Placed(n, "a", 2, members, paused=True) for n in "yz")]) == ()


@given(
    st.lists(
        st.builds(
            lambda name, owner, members: Placed(f"d{name}", owner, name, members),
            st.integers(0, 10**6),
            st.sampled_from(["", *NODES, "java"]),
            st.dictionaries(st.sampled_from(NODES), st.booleans()),
        ),
        unique_by=lambda each: each.destination,
        max_size=40,
    )
)
def test_a_plan_is_final_and_moves_each_destination_once(before: list[Placed]) -> None:
    """After a plan there is no other plan; no destination is in it twice, and each goes to a node that can take it."""
    moves = plan(before)
    assert len({move.destination for move in moves}) == len(moves)
    by_name = {each.destination: each for each in before}
    for move in moves:
        assert move.moved_to in by_name[move.destination].members
        assert move.moved_from == by_name[move.destination].owner != move.moved_to
    assert plan(after(before)) == ()


@given(st.lists(st.sampled_from(NODES), max_size=70))
def test_alike_destinations_become_even_with_the_fewest_moves(owners: list[str]) -> None:
    """No node runs two more than another, and only as many move as one node has too many."""
    before = placed(owners)
    counts = [Counter(each.owner for each in after(before))[node] for node in NODES]
    assert max(counts) - min(counts) <= 1
    floor = len(owners) // len(NODES)
    assert len(plan(before)) <= sum(max(0, owners.count(node) - floor) for node in NODES)
