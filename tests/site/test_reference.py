"""The reference is complete: each public name has a page, a task and an example, and every example runs."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import penstock as ps
from conftest import photographs
from docs._ext.reference import find_public_names, page_of_tasks, read_examples

EXAMPLES = read_examples()


@pytest.fixture(scope="module")
def premises(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every example finds: photographs of two classes, and a pack of them."""
    folder = tmp_path_factory.mktemp("premises")
    photographs(folder / "photos", per_class=8)
    ps.pack(folder / "photos", folder / "photos.lmdb")
    return folder


def test_each_public_name_has_an_example() -> None:
    """A name that is added to a public package is added to a task too; one that is removed goes from there."""
    described = {public.home for public in find_public_names()}

    assert described == set(EXAMPLES)


def test_the_index_by_task_names_each_public_name() -> None:
    """The index is made of the same examples."""
    index = page_of_tasks(EXAMPLES)

    assert all(f"[{public.home}](" in index for public in find_public_names())


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_runs(name: str, premises: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs alone, with the imports that its page shows, and what it asserts holds."""
    shutil.copytree(premises, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    tree = ast.parse(EXAMPLES[name].code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and not node.orelse:  # an error that is shown must have been raised
            node.orelse = ast.parse("raise AssertionError('nothing was raised')").body

    exec(compile(ast.fix_missing_locations(tree), name, "exec"), {"__name__": "example"})
