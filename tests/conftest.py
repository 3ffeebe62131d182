"""What all tests share: where the data are, and seeds that do not depend on the day."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
import pytest

# Same examples on every run: a failure seen once is seen again. `make test-slow` explores (profile "explore").
hypothesis.settings.register_profile("house", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))

# Tests start hundreds of programs, each of which would compile NumPy, torch and us anew if nobody kept the bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The shared test pictures: ``$PENSTOCK_DATA``, else ``../shared/data`` beside the repository; else skips."""
    given = os.environ.get("PENSTOCK_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no test pictures: set PENSTOCK_DATA, or put them at {ROOT.parent.name}/shared/data")
    return folder


@pytest.fixture(scope="session")
def imagenet_dir(data_dir: Path) -> Path:
    """400 photographs of ImageNet as JPEG files."""
    return _inside(data_dir, "imagenet")


@pytest.fixture(scope="session")
def hostile_dir(data_dir: Path) -> Path:
    """Damaged and malicious JPEG files."""
    return _inside(data_dir, "hostile-jpeg")


def pytest_unconfigure() -> None:
    """Let torch's handles on its workers' shared memory die before torch does: at exit each would print an error."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is not None:
        reductions.shared_cache.clear()


def _inside(data_dir: Path, name: str) -> Path:
    folder = data_dir / name
    if not folder.is_dir():
        pytest.skip(f"the test pictures lack {name}/")
    return folder
