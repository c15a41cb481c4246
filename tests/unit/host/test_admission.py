"""Who is let in: limits of the host and of each owner, and places that come back."""

import pytest
from a2a.utils.errors import A2AError, InternalError, UnsupportedOperationError
from hypothesis import given
from hypothesis import strategies as st

from a2a_gcs.host.admission import Admission


def reason(admission, owner=""):
    with pytest.raises(A2AError) as refused:
        admission.admit(owner)
    return refused.value.data["reason"]


def test_one_owner_at_its_limit_holds_up_nobody_else():
    """OWNER_BUSY for the one, room for the other, then HOST_BUSY for everybody."""
    admission = Admission(most=3, most_per_owner=2)
    first = admission.admit("ann")
    admission.admit("ann")
    assert reason(admission, "ann") == "OWNER_BUSY"
    admission.admit("bob")
    assert {reason(admission, owner) for owner in ("ann", "bob", "eve")} == {"HOST_BUSY"}
    first.leave()
    admission.admit("ann")


def test_a_place_is_given_back_once():
    """Leaving again frees nobody else's."""
    admission = Admission(most=1)
    place = admission.admit()
    place.leave()
    admission.admit()
    place.leave()
    assert reason(admission) == "HOST_BUSY"


def test_a_refusal_says_when_to_come_again():
    """As an A2A error that is not internal."""
    with pytest.raises(UnsupportedOperationError) as refused:
        Admission(most=1, most_per_owner=0).admit("ann")
    assert int(refused.value.data["retryAfterSeconds"]) > 0


def test_a_draining_host_takes_nothing():
    """Whatever room there is."""
    admission = Admission()
    admission.draining = True
    with pytest.raises(InternalError, match="restarted"):
        admission.admit()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans())))
def test_places_taken_are_those_not_left(steps):
    """Over any sequence of coming and going the counts are exact, never over a limit, and end at none."""
    admission = Admission(most=3, most_per_owner=2)
    held = []
    for owner, comes in steps:
        if comes:
            try:
                held.append((owner, admission.admit(owner)))
            except UnsupportedOperationError:
                mine = sum(o == owner for o, _ in held)
                assert len(held) == 3 or mine == 2
        elif held:
            held.pop(0)[1].leave()
        assert admission.running.total() == len(held) <= 3
    for _, place in held:
        place.leave()
    assert not admission.running
