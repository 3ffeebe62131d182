"""Calls that wait for the import of a framework are made at the import, however the framework is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import importlib.util, sys
from penstock import frameworks, registry

heard = []
registry.when_imported("torch", lambda: heard.append(sys.modules["torch"].answer))
{before}
try:
    import torch
except ImportError:
    print("no torch")
print(heard, [type(finder).__name__ for finder in sys.meta_path if type(finder).__module__ == registry.__name__])
"""


@pytest.fixture
def fake_torch(tmp_path: Path) -> Path:
    """A folder with a module that stands for torch, and takes no second to import."""
    (tmp_path / "torch.py").write_text("answer = 42\n")
    return tmp_path


def run(folder: Path, before: str) -> str:
    """What the program prints, with ``folder`` as its working directory."""
    program = [sys.executable, "-c", PROGRAM.format(before=before)]
    return subprocess.run(program, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("before", ["", "importlib.util.find_spec('torch')", "importlib.util.find_spec('torch')\n" * 2])
def test_asking_for_the_spec_consumes_nothing(fake_torch: Path, before: str) -> None:
    """What waits for torch is called once, at its import, also where somebody only looked for torch before."""
    assert run(fake_torch, before) == "[42] []"


def test_an_import_that_fails_is_tried_again(fake_torch: Path) -> None:
    """An import of torch that raises leaves the wait as it was: the next one ends it."""
    broken = fake_torch / "torch.py"
    broken.write_text("raise ImportError('broken')\n")
    again = (
        "try:\n    import torch\nexcept ImportError:\n    pass\n"
        f"open({str(broken)!r}, 'w').write('answer = 7')\nimportlib.invalidate_caches()"
    )

    assert run(fake_torch, again) == "[7] []"


def test_without_torch_everything_stays_as_it_is(tmp_path: Path) -> None:
    """Where torch is not installed, an import of it fails as ever."""
    hidden = (
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(1, Hidden())"
    )

    assert run(tmp_path, hidden).splitlines()[0] == "no torch"


def test_calls_wait_for_their_own_module(fake_torch: Path) -> None:
    """Two frameworks are waited for: the import of one makes its calls, and the other is still waited for."""
    (fake_torch / "cv2.py").write_text("")
    before = (
        "registry.when_imported('cv2', lambda: heard.append('cv2'))\n"
        "import torch\nprint(heard, frameworks.is_imported('torch'), len(sys.meta_path))\nimport cv2\n"
        "print(len(sys.meta_path))"
    )

    first, second, last = run(fake_torch, before).splitlines()
    heard, _, count = first.rpartition(" ")
    assert heard == "[42] True"
    assert int(second) == int(count) - 1
    assert last == "[42, 'cv2'] []"


def test_a_module_that_is_being_imported_is_not_imported(tmp_path: Path) -> None:
    """Another thread may see a framework in the middle of its import: nothing of it is used."""
    asking = "from penstock import frameworks\nseen = frameworks.is_imported('torch')\nanswer = seen\n"
    (tmp_path / "torch.py").write_text(asking)

    assert run(tmp_path, "") == "[False] []"
    assert run(tmp_path, "registry._waiting.clear()\nsys.meta_path.pop(0)\n") == "[] []"
