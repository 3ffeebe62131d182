"""Public signatures change only with a line in the changelog: ``signatures.txt`` holds all of them.

After a change, write the fragment that says it to users (changelog.d/README.md), and then
``python -m tests.test_signatures changelog.d/<what>.<kind>.md``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEPT = Path(__file__).parent / "signatures.txt"
MODULES = (
    "penstock",
    "penstock.annotations",
    "penstock.doctor",
    "penstock.transforms",
    "penstock.view",
    "penstock.torch",
    "penstock.pack",
    "penstock.loader",
    "penstock.simulation",
)
"""The public modules, as STABILITY.md lists them."""


def list_signatures(modules: tuple[str, ...] = MODULES) -> list[str]:
    """One line for each public callable, class and attribute; what a class has of a public one stands there."""
    things = [
        (f"{module}.{name}", getattr(importlib.import_module(module), name))
        for module in modules
        for name in sorted(importlib.import_module(module).__all__)
    ]
    classes = {thing: name for name, thing in things if isinstance(thing, type)}
    return [line for name, thing in things for line in _describe(name, thing, classes)]


def _describe(name: str, thing: object, classes: dict[type, str]) -> Iterator[str]:
    home = getattr(thing, "__module__", None) or ""
    if isinstance(thing, type) and home.startswith("penstock"):
        bases = [base for base in thing.__mro__[1:] if base in classes]
        yield f"class {name}{_sign(thing)}" + "".join(f" < {classes[base]}" for base in bases[:1])
        # What torch or Python itself defines is not ours to promise.
        owners = [each for each in thing.__mro__ if each is thing or (_is_ours(each) and each not in bases)]
        parts = {part: value for each in reversed(owners) for part, value in vars(each).items()}
        for part, value in sorted(parts.items()):
            if not part.startswith("_"):
                yield f"{name}.{part}{_sign_part(value)}"
    elif callable(thing) and home.startswith("penstock"):
        yield f"{name}{_sign(thing)}"
    elif callable(thing):
        yield f"{name} is {home}.{getattr(thing, '__qualname__', '')}"
    else:
        yield f"{name}: {'type' if 'Union' in type(thing).__name__ else type(thing).__name__}"


def _is_ours(owner: type) -> bool:
    return owner.__module__.startswith("penstock")


def _sign_part(value: object) -> str:
    if isinstance(value, property | functools.cached_property):
        return " (property)"
    if isinstance(value, staticmethod | classmethod):
        return _sign(value.__func__)
    return _sign(value) if inspect.isroutine(value) else " (attribute)"


def _sign(thing: object) -> str:
    try:
        signature = inspect.signature(thing)  # type: ignore[arg-type]  # what is not callable raises a TypeError
    except (TypeError, ValueError):
        return "(...)"
    return re.sub(r" at 0x[0-9a-f]+", "", str(signature)).replace("'", "").replace("\n", " ")


def test_signatures_are_those_that_were_published() -> None:
    """Whoever changes a public name or signature says so to users, in a fragment of the changelog."""
    modules = MODULES if importlib.util.find_spec("torch") else MODULES[:-1]
    kept = KEPT.read_text().splitlines()
    if modules != MODULES:
        kept = [line for line in kept if not line.removeprefix("class ").startswith("penstock.torch.")]

    changed = list(difflib.unified_diff(kept, list_signatures(modules), "signatures.txt", "now", n=0))

    assert not changed, "\n".join(changed) + (
        "\nPublic signatures differ from tests/signatures.txt. If that is meant: add a fragment to changelog.d that "
        "tells users (a removal or an incompatible change needs warnings first: STABILITY.md), then run "
        "python -m tests.test_signatures changelog.d/<what>.<kind>.md"
    )


def test_an_update_needs_a_fragment(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a fragment nothing is written."""
    before = KEPT.read_bytes()

    assert main(["changelog.d/nothing-of-this-name.feature.md"]) == 1

    assert "is no fragment" in capsys.readouterr().err
    assert KEPT.read_bytes() == before


def main(arguments: list[str]) -> int:
    """Write the file anew, if a fragment tells what has changed; the exit status."""
    fragment = ROOT / "changelog.d" / Path(arguments[0] if arguments else "").name
    if not re.fullmatch(r"[a-z0-9-]+\.[a-z]+\.md", fragment.name) or not fragment.is_file():
        print(f"{fragment.name} is no fragment in changelog.d: write it first, and name it here", file=sys.stderr)  # noqa: T201  # a program
        return 1
    KEPT.write_text("\n".join(list_signatures()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
