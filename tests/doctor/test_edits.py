"""A file is edited where it has to be, and stays byte for byte elsewhere."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import pytest

from penstock.doctor.fixes.edits import Edit, NotEditableError, PythonSource

PARAMETERS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn")


def find_call(source: PythonSource, name: str = "DataLoader") -> ast.Call:
    """The call whose function's name ends in ``name``, by its position."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    call = next(each for each in calls if ast.unparse(each.func).endswith(name))
    return source.find_call((call.lineno, call.end_lineno, call.col_offset, call.end_col_offset))


def edit(text: str, change: Callable[[PythonSource], Sequence[Edit]]) -> str:
    """The text with a change."""
    source = PythonSource(text)
    return source.apply(change(source))


def set_workers(source: PythonSource) -> list[Edit]:
    """``num_workers=4``."""
    return source.set_arguments(find_call(source), {"num_workers": "4"}, PARAMETERS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DataLoader(d)", "DataLoader(d, num_workers=4)"),
        ("DataLoader()", "DataLoader(num_workers=4)"),
        ("DataLoader(d, num_workers=2, drop_last=True)", "DataLoader(d, num_workers=4, drop_last=True)"),
        ("DataLoader(d, num_workers = (1 + n))  # why", "DataLoader(d, num_workers = (4))  # why"),
        ("DataLoader(d, 8, True, None, None, 2)", "DataLoader(d, 8, True, None, None, 4)"),
        ("DataLoader(d, 8,)", "DataLoader(d, 8, num_workers=4,)"),
        ("DataLoader((d), collate_fn=(f))", "DataLoader((d), collate_fn=(f), num_workers=4)"),
        ("DataLoader((d))", "DataLoader((d), num_workers=4)"),
        ("DataLoader(d,\n           batch_size=8)", "DataLoader(d,\n           batch_size=8, num_workers=4)"),
        ("DataLoader(\n    d,\n    8,\n)", "DataLoader(\n    d,\n    8,\n    num_workers=4,\n)"),
        ("DataLoader(\n    d,\n    8\n)", "DataLoader(\n    d,\n    8,\n    num_workers=4,\n)"),
        (
            "DataLoader(\n\td,\n\t8  # as in the paper, (twice)\n\t# none\n)",
            "DataLoader(\n\td,\n\t8,  # as in the paper, (twice)\n\tnum_workers=4,\n\t# none\n)",
        ),
        ("DataLoader(\r\n  d,\r\n)\r\n", "DataLoader(\r\n  d,\r\n  num_workers=4,\r\n)\r\n"),
        ("for x in tqdm(DataLoader(d), 'ü'): pass", "for x in tqdm(DataLoader(d, num_workers=4), 'ü'): pass"),
        ("x = 'äöü', DataLoader(d, 'ß')", "x = 'äöü', DataLoader(d, 'ß', num_workers=4)"),
        ("DataLoader(d, s[1:], lambda x: (x,))", "DataLoader(d, s[1:], lambda x: (x,), num_workers=4)"),
        ("t.u.data.DataLoader(d, f')')", "t.u.data.DataLoader(d, f')', num_workers=4)"),
    ],
)
def test_arguments_are_set(before: str, after: str) -> None:
    """The value is replaced where the argument is, also by place; else it is added in the way the call is written."""
    assert edit(before, set_workers) == after


@pytest.mark.parametrize("text", ["DataLoader(*a)", "DataLoader(d, **options)"])
def test_calls_that_unpack_are_refused(text: str) -> None:
    """The argument may be among what is unpacked."""
    with pytest.raises(NotEditableError, match="unpacks"):
        edit(text, set_workers)


def test_what_is_no_python_afterwards_is_refused() -> None:
    """A generator is the only argument of a call, without brackets of its own."""
    with pytest.raises(NotEditableError, match="written in a way"):
        edit("DataLoader(x for x in y)", set_workers)


def test_only_the_arguments_differ() -> None:
    """The tree is that of before, but for one keyword."""
    text = "import a  # first\n\n\ndef f():\n    '''Doc.'''\n    return [DataLoader(a.d, shuffle=True), 1]  # last\n"

    before, after = ast.parse(text), ast.parse(edit(text, set_workers))

    call = next(node for node in ast.walk(after) if isinstance(node, ast.Call))
    assert call.keywords.pop().arg == "num_workers"
    assert ast.dump(before) == ast.dump(after)


def import_loader(source: PythonSource) -> list[Edit]:
    """Of penstock's."""
    return source.import_loader(find_call(source, ("DataLoader", "DL")["as DL" in source.text]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.utils.data import DataLoader  # it\nDataLoader(d)",
         "from penstock.torch import DataLoader  # it\nDataLoader(d)"),
        ("from torch.utils.data import DataLoader, Dataset  # both\nDataLoader(d)",
         "from penstock.torch import DataLoader\nfrom torch.utils.data import Dataset  # both\nDataLoader(d)"),
        ("from torch.utils.data import Dataset, DataLoader\nDataLoader(d)",
         "from penstock.torch import DataLoader\nfrom torch.utils.data import Dataset\nDataLoader(d)"),
        ("from torch.utils.data import (\n    DataLoader as DL,\n    Dataset,\n)\nDL(d)",
         "from penstock.torch import DataLoader as DL\nfrom torch.utils.data import (\n    Dataset,\n)\nDL(d)"),
        ("from torch.utils.data import (\n    Dataset,\n    DataLoader,\n)\nDataLoader(d)",
         "from penstock.torch import DataLoader\nfrom torch.utils.data import (\n    Dataset,\n)\nDataLoader(d)"),
        ("def f():\n\tfrom torch.utils.data import DataLoader, Dataset\n\treturn DataLoader(d)",
         "def f():\n\tfrom penstock.torch import DataLoader\n\tfrom torch.utils.data import Dataset\n\treturn DataLoader(d)"),  # noqa: E501
        ("import x; from torch.utils.data import DataLoader, Dataset; DataLoader(d)",
         "import x; from penstock.torch import DataLoader\nfrom torch.utils.data import Dataset; DataLoader(d)"),
        ("import torch\nimport os  # o\n\ntorch.utils.data.DataLoader(d)",
         "import torch\nimport os  # o\nimport penstock.torch\n\npenstock.torch.DataLoader(d)"),
        ("import torch.utils.data as data\ndata.DataLoader(d)",
         "import torch.utils.data as data\nimport penstock.torch\npenstock.torch.DataLoader(d)"),
        ("from torch.utils import data\ndata.DataLoader(d)",
         "from torch.utils import data\nimport penstock.torch\npenstock.torch.DataLoader(d)"),
        ("from torch.utils.data.dataloader import DataLoader\nDataLoader(d)",
         "from penstock.torch import DataLoader\nDataLoader(d)"),
    ],
)  # fmt: skip
def test_the_loader_is_imported_from_penstock(before: str, after: str) -> None:
    """The import is changed where it names the class, and the call where it names a module."""
    assert edit(before, import_loader) == after


@pytest.mark.parametrize(
    "text",
    [
        "from common import DataLoader\nDataLoader(d)",
        "from .data import DataLoader\nDataLoader(d)",
        "from torch.utils.data import *\nDataLoader(d)",
        "class DataLoader: pass\nDataLoader()",
        "loaders['a'].DataLoader(d)",
    ],
)
def test_another_loader_is_refused(text: str) -> None:
    """It has to be known that the name is torch's."""
    with pytest.raises(NotEditableError, match="torch's class"):
        edit(text, import_loader)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("'''Doc.'''\nimport torch\nfrom torch import nn\n\nx = 1\n",
         "'''Doc.'''\nimport torch\nfrom torch import nn\ntorch.set_num_threads(1)\n\nx = 1\n"),
        ("import os\nos.x = 1\nimport torch as t  # late\nx = 1\n",
         "import os\nos.x = 1\nimport torch as t  # late\nt.set_num_threads(1)\nx = 1\n"),
        ("import torch.nn", "import torch.nn\ntorch.set_num_threads(1)"),
        ("from torch import nn\r\nx = 1\r\n",
         "from torch import nn\r\nimport torch\r\ntorch.set_num_threads(1)\r\nx = 1\r\n"),
    ],
)  # fmt: skip
def test_threads_are_set_behind_the_imports(before: str, after: str) -> None:
    """By the name that the module has for torch."""
    assert edit(before, lambda source: [source.set_threads()]) == after


ROWS = """
import numpy as np
from numpy import load

class Other:
    def __getitem__(self, i):
        return np.load("o.npy")[i]

class Rows:
    def __init__(self):
        self.first = np.load("a.npy")[0]

    @cached
    def __getitem__(self, i):
        x = np.load(self.path)
        y = load(self.path)[i, :]
        z = np.load(self.path)
        w = np.load(self.path, allow_pickle=True)[i]
        return x[i] + x[0], y, z.mean() + z[i], w
"""


def test_files_are_mapped_where_a_part_is_used() -> None:
    """Not where the whole array is used, or other arguments are given; not once read in ``__init__``."""
    mapped = edit(ROWS, lambda source: source.map_files(ROWS.splitlines().index("    @cached") + 1))

    changed = [after for before, after in zip(ROWS.splitlines(), mapped.splitlines(), strict=True) if before != after]
    assert [line.strip() for line in changed] == [
        'x = np.load(self.path, mmap_mode="r")',
        'y = load(self.path, mmap_mode="r")[i, :]',
    ]
