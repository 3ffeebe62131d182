"""A channel carries whole messages and their descriptors, in order, whatever the socket takes at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.workers.processes.sockets import Channel

Pair = tuple[Channel, Channel]


def make_pair(*, blocking: bool = False, buffer_nbytes: int | None = None) -> Pair:
    """Two ends; with buffers as small as the system makes them if asked."""
    one, two = socket.socketpair()
    if buffer_nbytes is not None:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_nbytes)
        two.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_nbytes)
    return Channel(one, blocking=blocking), Channel(two, blocking=blocking)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two ends that do not wait; closed in the end."""
    made = make_pair()
    yield made
    for end in made:
        end.close()


def descriptors() -> int:
    """How many this process has open."""
    return len([*Path("/proc/self/fd").iterdir()])


def received(channel: Channel) -> list[Any]:
    """Head and body of every message that is there."""
    found = []
    while (message := channel.receive()) is not None:
        found.append(message[:2])
    return found


@given(st.lists(st.tuples(st.one_of(st.integers(), st.text(), st.lists(st.floats(allow_nan=False))), st.binary())))
def test_messages_come_as_they_were_sent(messages: list[tuple[Any, bytes]]) -> None:
    """Any heads and bodies, none merged, none split, in order."""
    here, there = make_pair()
    for head, body in messages:
        here.send(head, body)

    assert received(there) == messages
    assert there.receive() is None
    here.close()
    there.close()


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=5))
def test_what_a_full_socket_does_not_take_follows_later(sizes: list[int]) -> None:
    """An end that does not wait keeps the rest, says so, and sends it piece by piece as the other one reads."""
    here, there = make_pair(buffer_nbytes=4096)
    for number, size in enumerate(sizes):
        here.send(number, bytes([number]) * size)
    waited = here.unsent
    came: list[Any] = []
    while here.unsent or len(came) < len(sizes):
        came += received(there)
        here.flush()

    assert came == [(number, bytes([number]) * size) for number, size in enumerate(sizes)]
    assert waited or sum(sizes) < 300_000
    here.close()
    there.close()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50_000)), max_size=8))
def test_descriptors_stay_with_their_message(messages: list[tuple[int, int]]) -> None:
    """Each message brings its own, also beside bodies that come in pieces."""
    before = descriptors()
    here, there = make_pair(buffer_nbytes=4096)
    wanted, found = [], []
    for number, (count, size) in enumerate(messages):
        fds = [os.memfd_create(f"{number}.{i}") for i in range(count)]
        wanted.append([f"/memfd:{number}.{i} (deleted)" for i in range(count)])
        here.send(number, b"x" * size, fds)
        while here.unsent:
            found += take_names(there)
            here.flush()
        for fd in fds:
            os.close(fd)
    found += take_names(there)
    here.close()
    there.close()

    assert found == wanted
    assert descriptors() == before


def take_names(channel: Channel) -> list[list[str]]:
    """What the descriptors of every message that is there are open on; closes them."""
    found = []
    while (message := channel.receive()) is not None:
        found.append([str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in message[2]])
        for fd in message[2]:
            os.close(fd)
    return found


def test_missing_descriptors_are_not_taken_from_the_next_message(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that lost some (too many open files) has the fewer, and the next one its own."""
    here, there = pair
    fds = [os.memfd_create(name) for name in ("a", "b", "c")]
    real = socket.recv_fds

    def lose_all_but_one(*args: Any) -> Any:
        content, came, flags, address = real(*args)
        if len(came) < 2:
            return content, came, flags, address
        for fd in came[1:]:
            os.close(fd)
        return content, came[:1], flags | socket.MSG_CTRUNC, address

    monkeypatch.setattr(socket, "recv_fds", lose_all_but_one)
    here.send(1, b"", fds[:2])
    here.send(2, b"", fds[2:])
    names = take_names(there)
    for fd in fds:
        os.close(fd)

    assert names == [["/memfd:a (deleted)"], ["/memfd:c (deleted)"]]


def test_the_other_sides_end_is_an_end_after_all_that_was_sent(pair: Pair) -> None:
    """What was whole still comes; half a message does not, and its descriptors are closed."""
    here, there = pair
    before = descriptors()
    fd = os.memfd_create("half")
    here.send("whole")
    whole = there.receive()
    here._socket.sendall(b"")
    socket.send_fds(here._socket, [b"\x10\0\0\0"], [fd])  # a length, and nothing behind it
    os.close(fd)
    here.close()
    half, ended = there.receive(), there.ended
    there.close()

    assert whole is not None
    assert whole[0] == "whole"
    assert (half, ended) == (None, True)
    assert descriptors() == before - 2


def test_sending_to_one_who_is_gone_is_an_end_not_an_error(pair: Pair) -> None:
    """A worker may be killed at any moment: its parent finds out when it reads."""
    here, there = pair
    there.close()
    here.send("into the void", b"x" * 100_000)
    here.send("again")

    assert here.ended
    assert here.receive() is None


def test_a_closed_channel_is_at_its_end(pair: Pair) -> None:
    """One thread closes while another looks: it finds an end, not an error of the system."""
    here, _ = pair
    here.close()
    here.close()
    here.send("nobody hears it")

    assert here.ended
    assert here.receive() is None


def test_a_head_that_cannot_be_pickled_leaves_no_trace(pair: Pair) -> None:
    """The error is the sender's; the next message is not spoiled."""
    here, there = pair
    with pytest.raises(AttributeError):
        here.send(lambda: None)
    here.send("next")

    assert received(there) == [("next", b"")]


def test_a_channel_that_waits_need_not() -> None:
    """Asked for what is there, it gives whole messages or nothing, at once; half a message stays for later."""
    here, there = make_pair(blocking=True)
    nothing = there.receive(wait=False)
    here.send("one", b"x")
    here.send("two")
    whole = [there.receive(wait=False) for _ in range(3)]
    here._socket.sendall(b"\x10\0\0\0")
    half, ended = there.receive(wait=False), there.ended
    here.close()

    assert nothing is None
    assert whole == [("one", b"x", []), ("two", b"", []), None]
    assert (half, ended) == (None, False)
    assert there.receive(wait=False) is None
    assert there.ended
    there.close()
