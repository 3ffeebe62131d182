"""Runs every Python example of README.md and docs/ (`make docs`), each page in an empty folder with photographs."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Runners share the cores; OpenMP's threads would wait for each other by spinning. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent


def photographs(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), per_class: int = 80) -> None:
    """Some small JPEG files, one sub-folder a class: noise on a colour ramp, which is enough for an example."""
    for name, content in make_photographs(classes, per_class).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@functools.cache
def make_photographs(classes: tuple[str, ...], per_class: int) -> dict[str, bytes]:
    """Their names and bytes; once in a process, for sixty pages."""
    import numpy as np
    from PIL import Image

    draw, files = np.random.default_rng(0), {}
    for name in classes:
        for number in range(per_class):
            height, width = draw.integers(120, 260, size=2)
            ramp = np.linspace(draw.integers(0, 120, 3), draw.integers(120, 255, 3), int(width))
            picture = np.broadcast_to(ramp, (int(height), int(width), 3)) + draw.normal(
                0, 6, (int(height), int(width), 3)
            )
            file = io.BytesIO()
            Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
            files[f"{name}/{number}.jpg"] = file.getvalue()
    return files


def loggers() -> list[logging.Logger]:
    """Those of the package."""
    known = logging.root.manager.loggerDict.items()
    return [log for name, log in known if name.startswith("penstock") and isinstance(log, logging.Logger)]


def forget_registered() -> None:
    """Remove the stores and formats of annotations that an example registered."""
    from penstock.annotations import FORMATS
    from penstock.stores import STORES

    for registry in (STORES, FORMATS):
        entries = registry._entries  # noqa: SLF001  # only tests take an entry back
        for name in [name for name, target in entries.items() if not target.startswith("penstock.")]:
            sys.modules.pop(entries.pop(name).partition(":")[0], None)


def setup(namespace: dict[str, Any]) -> None:
    """An empty folder to run in, with `photos/` in it."""
    namespace["_home"], namespace["_folder"] = Path.cwd(), Path(tempfile.mkdtemp(prefix="penstock-docs-"))
    namespace["_logs"] = {log: (log.level, log.handlers[:]) for log in loggers()}
    namespace["_search"] = sys.path[:]
    photographs(namespace["_folder"] / "photos")
    os.chdir(namespace["_folder"])


def teardown(namespace: dict[str, Any]) -> None:
    """Leave and remove it; end what other tests would see: handlers of logs, workers of kept loaders, own kinds."""
    os.chdir(namespace["_home"])
    sys.path[:] = namespace["_search"]
    forget_registered()
    shutil.rmtree(namespace["_folder"])
    for log in loggers():
        level, log.handlers[:] = namespace["_logs"].get(log, (logging.NOTSET, []))
        log.setLevel(level)
    namespace.clear()
    gc.collect()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/howto/*.md", "docs/problems/*.md"],
    path=str(ROOT),
    setup=setup,
    teardown=teardown,
).pytest()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Run first the examples above this one of its page, where another process was given them, or nobody."""
    if not isinstance(item, SybilItem):
        return
    own = item.example
    ran = own.namespace.setdefault("_ran", set())
    for example in own.document.examples():
        if example.start < own.start and example.start not in ran:
            ran.add(example.start)
            with contextlib.suppress(SkipTest):
                example.evaluate()
    ran.add(own.start)
