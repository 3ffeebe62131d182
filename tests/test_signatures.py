"""Public signatures change only with a line in the changelog: ``signatures.txt`` has those of the last release.

A change of one is named in a fragment (changelog.d/README.md). ``python -m tests.test_signatures`` writes the file anew
for the next release, when Cargo.toml has its version (docs/releasing.md).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
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
    "penstock.sheets",
    "penstock.torch",
    "penstock.torch.decoders",
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
    return [line for name, thing in things for line in _describe_signature(name, thing, classes)]


def _describe_signature(name: str, thing: object, classes: dict[type, str]) -> Iterator[str]:
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


def find_untold(released: list[str], now: list[str], fragments: str) -> list[str]:
    """The signatures that are new, changed or gone since the release, and that no fragment names in backticks."""
    told = {word for code in re.findall(r"`([^`]+)`", fragments) for word in re.findall(r"\w+", code)}
    changed = [f"- {line}" for line in sorted(set(released) - set(now))]
    changed += [f"+ {line}" for line in sorted(set(now) - set(released))]
    return [line for line in changed if not told & set(_find_names(line))]


def _find_names(changed: str) -> list[str]:
    """The name that changed and that of its class, without the module: either may be in a fragment."""
    name = changed[2:].removeprefix("class ")
    module = max((each for each in MODULES if name.startswith(f"{each}.")), key=len)
    return re.split(r"[^\w.]", name.removeprefix(f"{module}."))[0].split(".")


def test_fragments_tell_what_changed_since_the_release() -> None:
    """Whoever changes a public name or signature that users have says so to them, in a fragment of the changelog."""
    pytest.importorskip("torch")
    fragments = "".join(path.read_text() for path in (ROOT / "changelog.d").glob("*.*.md"))

    untold = find_untold(KEPT.read_text().splitlines(), list_signatures(), fragments)

    assert not untold, "\n".join(untold) + (
        "\nThese public signatures differ from those of the release, tests/signatures.txt. If that is meant, name each "
        "or its class in backticks in a fragment of changelog.d; a removal or an incompatible change needs warnings "
        "first: STABILITY.md. If the version in Cargo.toml is not released yet: python -m tests.test_signatures"
    )


RELEASED = [
    "class penstock.Loader(size: int) -> None",
    "penstock.Loader.close(self) -> None",
    "penstock.pack(source: str) -> None",
    "class penstock.pack.Report() -> None",
]


@pytest.mark.parametrize(
    ("old", "new", "fragment", "untold"),
    [
        ("size: int", "size: float", "Loaders take `float`.", 2),
        ("size: int", "size: float", "`Loader(size=)` takes floats.", 0),
        (".close(", ".stop(", "`Loader(size=)` takes floats.", 0),
        (".close(", ".stop(", "`close` is `stop` now.", 0),
        (".close(", ".stop(", "close is stop now", 2),
        ("pack(source", "pack(path", "`penstock.Loader` packs.", 2),
        ("pack(source", "pack(path", "`ps.pack(path=)`", 0),
        ("Report", "Summary", "`penstock.pack.Report` has another name.", 1),
        ("Report", "Summary", "`penstock.pack` gives what it gave.", 2),
        ("Report", "Report", "", 0),
    ],
)
def test_a_change_that_no_fragment_names_is_found(old: str, new: str, fragment: str, untold: int) -> None:
    """The name or its class must be in backticks; a name that is gone and a new one count both."""
    now = [line.replace(old, new) for line in RELEASED]

    assert len(find_untold(RELEASED, now, fragment)) == untold


@pytest.mark.parametrize("tag", ["v1.2.0", "v1.1.0"])
def test_signatures_of_a_release_are_not_written_anew(
    tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once a version has its tag, signatures.txt stays until Cargo.toml has the next version."""
    pytest.importorskip("torch")
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.0"\n')
    kept = tmp_path / "signatures.txt"
    kept.write_text("released\n")
    for command in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "Release"], ["tag", tag]):
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "KEPT", kept)

    status = main()

    assert status == (tag == "v1.2.0")
    assert ("1.2.0 is released" in capsys.readouterr().err) == (tag == "v1.2.0")
    assert (kept.read_text() == "released\n") == (tag == "v1.2.0")


def main() -> int:
    """Write the file anew, unless the version of Cargo.toml is released; the exit status."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    tags = subprocess.run(["git", "tag", "--list", f"v{version}"], cwd=ROOT, capture_output=True, check=True)
    if tags.stdout:
        print(f"{version} is released: name what changes in a fragment of changelog.d", file=sys.stderr)  # noqa: T201  # a program
        return 1
    KEPT.write_text("\n".join(list_signatures()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
