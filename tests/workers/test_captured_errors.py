"""Exceptions across processes: what torch loses, and what is kept."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest

from penstock.errors import SampleError, StateError
from penstock.workers.processes.captured_errors import CapturedError


class Keyed(Exception):  # noqa: N818  # a user's
    """Wants two arguments, keeps one, and none of them is a message."""

    def __init__(self, key: str, *, code: int) -> None:
        super().__init__()
        self.key, self.code = key, code


class Slotted(ValueError):  # noqa: N818  # a user's
    """Has a constructor without arguments."""

    def __init__(self) -> None:
        super().__init__("always the same")


class Choosy(Exception):  # noqa: N818  # a user's
    """Cannot be made but by its author."""

    def __new__(cls, *args: Any) -> Any:  # noqa: D102  # Python's own
        if not args or args[0] != "please":
            raise TypeError("no")
        return super().__new__(cls, *args)

    def __init__(self, _word: str) -> None:
        super().__init__("made")


def crossed(error: BaseException) -> BaseException:
    """``error``, raised in one process and rebuilt in another."""
    try:
        raise error  # noqa: TRY301  # so that it has a traceback
    except BaseException as raised:  # noqa: BLE001  # any
        captured = pickle.loads(pickle.dumps(CapturedError.capture(raised)))
    rebuilt: BaseException = captured.rebuild(3)
    return rebuilt


def told(error: BaseException) -> str:
    """All that a user sees of it."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"), KeyError("k"), KeyError("a\nb"), IndexError(3), OSError(2, "gone", "a.jpg"), OSError("plain"),
        FileNotFoundError(2, "gone", "a.jpg"), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), StopIteration(4),
        SystemExit(2), KeyboardInterrupt(), MemoryError(), ImportError("no", name="cv3"), RecursionError("deep"),
        ExceptionGroup("two", [ValueError(1), KeyError(2)]), AssertionError(), Keyed("k", code=4), Slotted(),
        SampleError("s", key="k", index=3), StateError("s"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_type_words_and_place_come_across(error: BaseException) -> None:
    """`except` finds it, and the text has the worker, its traceback and the first words."""
    came = crossed(error)

    assert type(came) is type(error)
    assert f"Caught {type(error).__name__} in DataLoader worker process 3" in told(came)
    assert "in crossed" in told(came)
    assert str(error) in told(came)


def test_a_plain_exceptions_message_is_torchs() -> None:
    """As torch has it, so that whoever looks for these words finds them; a KeyError's lines stay lines."""
    assert str(crossed(ValueError("v"))).startswith(
        "Caught ValueError in DataLoader worker process 3.\nOriginal Traceb"
    )
    assert str(crossed(KeyError("k"))).count("\n") > 3


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (OSError(2, "gone", "a.jpg"), {"errno": 2, "strerror": "gone", "filename": "a.jpg"}),
        (OSError(18, "two", "a", None, "b"), {"filename": "a", "filename2": "b"}),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), {"object": b"x", "reason": "bad"}),
        (ImportError("no", name="cv3"), {"name": "cv3"}),
        (Keyed("k", code=4), {"key": "k", "code": 4, "args": ()}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attributes_come_across(error: BaseException, attributes: dict[str, Any]) -> None:
    """Those that programs look at, wherever Python keeps them."""
    came = crossed(error)

    assert {name: getattr(came, name) for name in attributes} == attributes


def test_what_cannot_be_pickled_stays_behind_alone() -> None:
    """One attribute less; the others come."""
    error = Keyed("k", code=4)
    error.stream = lambda: None  # type: ignore[attr-defined]  # a user's
    came = crossed(error)

    assert isinstance(came, Keyed)
    assert came.key == "k"
    assert not hasattr(came, "stream")


def test_arguments_that_cannot_be_pickled_do_not_cost_the_type() -> None:
    """The message is in the traceback."""
    assert type(crossed(ValueError(lambda: None))) is ValueError


def test_who_cannot_be_made_is_told() -> None:
    """Of a class in a function, or one that refuses: an error of penstock's with its name, text and place."""

    class LocalError(Exception):
        pass

    for error in (LocalError("hidden"), Choosy("please")):
        came = crossed(error)
        assert type(came) is SampleError
        assert type(error).__name__ in str(came)
        assert came.where["worker"] == 3


def test_notes_and_causes_are_in_the_text() -> None:
    """The whole chain, as the worker would have printed it."""
    error = ValueError("outer")
    error.__cause__ = OSError("inner")
    error.add_note("a note")

    assert all(words in told(crossed(error)) for words in ("outer", "inner", "a note"))
