"""Share sessions: their epochs, what they tell of, and how they end."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.sessions import ShareSessions

T = UUID(int=1)
MEMBER = ("group", "m")


def test_epochs_follow_each_other_and_begin_again_after_the_greatest() -> None:
    sessions = ShareSessions(10)
    session = sessions.begin(MEMBER, {(T, 0): "t"}, "connection")
    for epoch, wanted in ((1, None), (1, ShareErrorCode.INVALID_SHARE_SESSION_EPOCH), (2, None)):
        if wanted is None:
            assert sessions.go_on(MEMBER, epoch) is session
        else:
            with pytest.raises(RefusedError) as error:
                sessions.go_on(MEMBER, epoch)
            assert error.value.error_code == wanted
    session.epoch = (1 << 31) - 1
    sessions.go_on(MEMBER, (1 << 31) - 1)
    assert session.epoch == 1


def test_too_many_sessions_are_refused_but_a_member_may_begin_again() -> None:
    sessions = ShareSessions(1)
    sessions.begin(MEMBER, {}, "a")
    sessions.begin(MEMBER, {}, "b")
    with pytest.raises(RefusedError) as error:
        sessions.begin(("group", "other"), {}, "c")
    assert error.value.error_code == ShareErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_an_answer_tells_of_records_errors_and_what_is_new() -> None:
    session = ShareSessions(10).begin(MEMBER, {(T, 0): "t", (T, 1): "t"}, "connection")
    assert not session.tells((T, 0), has_records=False, failed=False)
    session.update({(T, 2): "t"}, [(T, 1)])
    assert session.tells((T, 2), has_records=False, failed=False)
    assert not session.tells((T, 2), has_records=False, failed=False)
    assert session.tells((T, 0), has_records=True, failed=False)
    # It is the last one in turn now.
    assert [*session.partitions] == [(T, 2), (T, 0)]
    assert session.tells((T, 2), has_records=False, failed=True)
    assert session.tells((T, 2), has_records=False, failed=False), "the error is over"


def test_a_session_ends_with_its_own_connection_only() -> None:
    sessions = ShareSessions(10)
    sessions.begin(MEMBER, {}, "old")
    session = sessions.begin(MEMBER, {}, "new")
    assert sessions.disconnected("old") == {MEMBER: None}
    assert sessions.has_members("group")
    assert sessions.disconnected("new") == {MEMBER: session}
    assert not sessions.has_members("group")
    assert sessions.disconnected("new") == {}
    assert len(sessions) == 0


def test_all_sessions_of_a_connection_end_with_it() -> None:
    sessions = ShareSessions(2)
    begun = {("group", name): sessions.begin(("group", name), {}, "one") for name in ("a", "b")}
    assert sessions.disconnected("one") == begun
    assert len(sessions) == 0


def test_a_connection_whose_sessions_end_again_and_again_does_not_grow() -> None:
    sessions = ShareSessions(2)
    for number in range(100):
        sessions.begin(("group", str(number)), {}, "one")
        sessions.end(("group", str(number)))
    assert len(sessions.disconnected("one")) == 1
