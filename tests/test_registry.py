"""The registry's door to optional packages: what is missing is named, with the command that installs it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from penstock.errors import OptionalPackageError
from penstock.registry import require

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("extra", "command"),
    [("torch", "pip install 'penstock-data[torch]'"), (None, "pip install no_such_package")],
)
def test_a_missing_package_comes_with_the_command_that_installs_it(extra: str | None, command: str) -> None:
    """The extra is that of the distribution `penstock-data`; without an extra, the package itself is named."""
    with pytest.raises(OptionalPackageError) as caught:
        require("no_such_package.inside", extra=extra, purpose="for this test")

    assert str(caught.value) == f"the package 'no_such_package' is needed for this test; install it with: {command}"


def test_every_extra_that_a_message_names_is_declared() -> None:
    """`require(..., extra=...)` names an extra of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    named = {
        name for path in (ROOT / "penstock").rglob("*.py") for name in re.findall(r'extra="(\w+)"', path.read_text())
    }

    assert named
    assert named <= set(extras)
