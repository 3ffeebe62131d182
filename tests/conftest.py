"""What all tests share: where the data are, seeds that do not depend on the day, a process that is quick to fork."""

from __future__ import annotations

import gc
import os
import signal
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


def pytest_collection_finish() -> None:
    """Keep the collector off what was imported and collected, and make Ctrl-C the program's own.

    Many tests collect garbage, and workers are forked: going through torch's objects and thousands of tests each time
    would take most of the run. A shell that starts the run in the background has it ignore SIGINT, and so would the
    programs that tests interrupt.
    """
    gc.collect()
    gc.freeze()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    """Let all of it die, torch's handles on its workers' memory before torch: at exit each would print an error."""
    gc.unfreeze()
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is not None:
        reductions.shared_cache.clear()


def _inside(data_dir: Path, name: str) -> Path:
    folder = data_dir / name
    if not folder.is_dir():
        pytest.skip(f"the test pictures lack {name}/")
    return folder
