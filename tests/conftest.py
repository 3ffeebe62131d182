"""What all tests share: where the data are, seeds that do not depend on the day, a process that is quick to fork."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from penstock import system
from tests.hostile.gallery import write_gallery
from tests.photographs import write_photographs
from tests.time_limits import pytest_timeout_set_timer  # noqa: F401  # a hook

# Same examples on every run: a failure seen once is seen again. `make test` has few; `make test-slow` explores many new
# ones, in CI always the same; with these two profiles every hypothesis test counts as slow. A test whose examples take
# long has a share of them, such as `settings().max_examples // 8`.
PROFILE: Final = os.environ.get("HYPOTHESIS_PROFILE", "house")
hypothesis.settings.register_profile(
    "house", max_examples=30, derandomize=True, deadline=None, database=None, print_blob=True
)
hypothesis.settings.register_profile("many", hypothesis.settings.get_profile("house"), max_examples=200)
hypothesis.settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
hypothesis.settings.load_profile(PROFILE)

# Tests start hundreds of programs, each of which would compile NumPy, torch and us anew if nobody kept the bytecode.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The fork server imports torch, where it is there, once for all workers that tests start by it.
multiprocessing.set_forkserver_preload(["penstock.torch", "penstock.torch.tensor_sharing"])

_file: Path | None = None
"""The file whose tests run."""

ROOT = Path(__file__).resolve().parent.parent


CORPUS: Final = pytest.mark.slow
"""On tests over collections from outside the repository; only `make test-slow` needs those."""


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of collections outside the repository: ``$PENSTOCK_DATA``, else ``../shared/data``; else skips."""
    given = os.environ.get("PENSTOCK_DATA")
    folder = Path(given) if given else ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no collections of pictures: set PENSTOCK_DATA, or put them at {ROOT.parent.name}/shared/data")
    return folder


@pytest.fixture(
    scope="session", params=["own", pytest.param("imagenet", marks=CORPUS), pytest.param("bccd", marks=CORPUS)]
)
def photographs_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEG files of photographs in folders, ``*/*.jpg``: our own in an ordinary run, collections in a slow one."""
    if request.param == "own":
        return write_photographs(tmp_path_factory.mktemp("photographs"))
    return _collection(request, request.param)


@pytest.fixture(scope="session", params=["own", pytest.param("hostile-jpeg", marks=CORPUS)])
def hostile_dir(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Malformed JPEG files, ``*.jpg``: our own in an ordinary run, those that a fuzzer found in a slow one."""
    if request.param == "own":
        return write_gallery(tmp_path_factory.mktemp("hostile"))
    return _collection(request, request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests as slow where each tries many examples; give slow ones more time."""
    for item in items:
        has_examples = isinstance(item, pytest.Function) and hypothesis.is_hypothesis_test(item.obj)
        if PROFILE != "house" and (has_examples or item.get_closest_marker("tries")):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


def pytest_configure() -> None:
    """Let Ctrl-C interrupt: a shell that starts the run in the background has it, and what it starts, ignore SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _libraries_without_fork() -> Iterator[None]:
    """What a test has used of libraries that do not support fork does not decide how the next one starts workers.

    Fixtures of a module, and threads that a test has left, may use them after its end.
    """
    system._users.clear()
    yield
    system._users.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Before the first test of a file, exempt all objects that exist from garbage collection.

    Many tests collect garbage, and workers are forked: to visit what was imported, thousands of tests and their reports
    each time would take most of the run.
    """
    global _file  # noqa: PLW0603  # hooks have no other memory
    if item.path != _file:
        _file = item.path
        gc.collect()
        gc.freeze()


def pytest_unconfigure() -> None:
    """Free torch's handles on its workers' memory before torch itself: at exit each would print an error."""
    gc.unfreeze()
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    if reductions is not None:
        reductions.shared_cache.clear()


def _collection(request: pytest.FixtureRequest, name: str) -> Path:
    data_dir: Path = request.getfixturevalue("data_dir")
    if not (data_dir / name).is_dir():
        pytest.skip(f"the collections lack {name}/")
    return data_dir / name
