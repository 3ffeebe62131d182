"""Calls of functions that read or decode: what each gave is kept, and given again at the same place of a sample.

::

    replace_functions(stage)     a function of STAGE_OF_FUNCTION ── in all modules ──> one that keeps its results
    with SampleCalls(calls):     the n-th call of each function gives what its n-th call gave before

Used by :mod:`.ablation`, in a trial's child only. Calls of a function are told apart by their order within a sample: a
dataset that draws a file by chance gets the first one again.
"""

from __future__ import annotations

import functools
import io
import operator
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from penstock.doctor.watching.stage_names import HANDLES, STAGE_OF_FUNCTION

if TYPE_CHECKING:
    Function = Callable[..., object]

__all__ = ["Calls", "SampleCalls", "replace_functions"]

_MOST_FILE: Final = 1 << 26
"""Larger files are read again."""
_PLAIN: Final = (int, float, complex, str, bytes, bytearray, memoryview, type(None), tuple, list, dict, set)
_AGAIN: Final = object()
"""Is kept where a call has to be made again."""


class Calls(dict[str, list[object]]):
    """What the calls of a sample gave, by the function's name and in their order."""


class _Present(threading.local):
    """The sample that a thread makes; ``calls`` is None outside of one, and within a call that is kept."""

    calls: Calls | None = None
    seen: dict[str, int]


_present: Final = _Present()


class SampleCalls:
    """A context in which a sample is made, with what its calls gave before."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        _present.calls, _present.seen = self._calls, {}

    def __exit__(self, *_: object) -> None:
        _present.calls = None


def _keep_calls(
    function: Function,
    keep: Function | None = None,
    give: Function | None = None,
    name: str = "",
) -> Function:
    """Return a function that gives what ``function`` gave at the same place of the same sample.

    ``keep``: from a result and the arguments to what is kept of it, or ``_AGAIN``. ``give``: from what was kept, and
    the arguments, to a result.
    """
    keep, give, name = keep or _keep_result, give or _keep_result, name or getattr(function, "__qualname__", "")

    @functools.wraps(function, updated=())
    def call(*args: object, **more: object) -> object:
        calls = _present.calls
        if calls is None:
            return function(*args, **more)
        kept, at = calls.setdefault(name, []), _present.seen.get(name, 0)
        _present.calls, _present.seen[name] = None, at + 1
        try:
            if at == len(kept):
                result = function(*args, **more)
                kept.append(keep(result, *args, **more))
                return result if kept[at] is _AGAIN else give(kept[at], *args, **more)
            return function(*args, **more) if kept[at] is _AGAIN else give(kept[at], *args, **more)
        finally:
            _present.calls = calls

    return call


class _Handle:
    """What a program reads from by methods, such as an open file of HDF5: what these give is kept, and it stays open.

    Results that are no plain data are handles too.
    """

    def __init__(self, real: object) -> None:
        self._real = real

    def __getattr__(self, name: str) -> object:
        if name in {"close", "release"}:
            return lambda: None
        value = getattr(self._real, name)
        return _keep_calls(value, _keep_handle, name=name) if callable(value) else value

    def __getitem__(self, key: object) -> object:
        return _keep_calls(operator.getitem, _keep_handle, name="[]")(self._real, key)

    def __iter__(self) -> Iterator[object]:
        return iter(cast("list[object]", _keep_calls(list, name="iter")(self._real)))

    def __len__(self) -> int:
        return cast("int", _keep_calls(len, name="len")(self._real))

    def __array__(self, *args: object, **_: object) -> object:
        return _keep_calls(sys.modules["numpy"].asarray, name="array")(self._real, *args[:1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _keep_result(result: object, *_: object, **__: object) -> object:
    return result


def _keep_handle(result: object, *_: object, **__: object) -> object:
    is_plain = isinstance(result, _PLAIN) or type(result).__module__.partition(".")[0] in {"numpy", "torch"}
    return result if is_plain and type(result).__name__ != "NpzFile" else _Handle(result)


_replacements: Final[dict[int, tuple[object, object]]] = {}
"""By the identity of a function: the function, and what takes its place."""


def replace_functions(stage: str, dataset: object) -> None:
    """Put functions that give back what they gave in the place of those of ``stage``, wherever a module names them."""
    if stage not in {"read", "decode"} or _replacements:
        return
    for function, found in _list_replacements(stage):
        _replacements[id(function)] = function, found
    for module in list(sys.modules.values()):
        names: dict[str, object] = getattr(module, "__dict__", {})  # some are no modules
        for name, value in list(names.items()):
            known = _replacements.get(id(value))
            if known is not None and value is known[0]:
                names[name] = known[1]
    kinds = [function for function, _ in _replacements.values() if isinstance(function, type)]
    for name, value in list(getattr(dataset, "__dict__", {}).items()):  # what was opened before
        if type(value) in kinds or type(value).__name__ in {"Connection", "Environment", "Transaction"}:
            vars(dataset)[name] = _Handle(value)


def _list_replacements(stage: str) -> Iterator[tuple[Function, Function]]:
    """Functions of a stage, of modules that are imported, and what takes their place."""
    for qualified, of_stage in STAGE_OF_FUNCTION.items():
        owner, _, name = qualified.rpartition(".")
        function = getattr(sys.modules.get(owner), name, None)
        if function is not None and of_stage == "both":
            yield function, _keep_file_function(function, stage)
        elif function is not None and of_stage == stage:
            yield function, _keep_calls(function, _keep_handle if qualified in HANDLES else _keep_result)
    if stage == "decode":
        _replace_pictures()
        return
    yield open, _keep_calls(open, _keep_file, _give_file)
    for lister in (os.scandir, os.walk):
        yield lister, _keep_calls(lister, lambda result, *_, **__: list(result), lambda kept, *_, **__: _Entries(kept))
    hdf5 = sys.modules.get("h5py")
    if hdf5 is not None:
        hdf5.Dataset.__getitem__ = _keep_calls(hdf5.Dataset.__getitem__)


def _keep_file(file: object, path: object, mode: object = "r", *_: object, **__: object) -> object:
    """Return the content of a file that was opened for reading; its encoding if it is text."""
    is_small = (
        isinstance(file, io.IOBase)
        and isinstance(path, (str, bytes, os.PathLike))
        and (stat.S_ISREG((status := os.fstat(file.fileno())).st_mode) and status.st_size <= _MOST_FILE)
    )
    if not is_small or not isinstance(mode, str) or set(mode) & set("wax+"):
        return _AGAIN
    assert isinstance(file, io.IOBase), "as above"
    with file:
        if isinstance(file, io.TextIOWrapper):
            return file.buffer.read(), file.encoding
        return cast("io.BufferedReader", file).read(), ""


def _give_file(kept: object, *_: object, **__: object) -> object:
    content, encoding = cast("tuple[bytes, str]", kept)
    return io.TextIOWrapper(io.BytesIO(content), encoding) if encoding else io.BytesIO(content)


def _keep_file_function(function: Function, stage: str) -> Function:
    """Return one for a function that reads a file and decodes it: one of both is left out."""
    name = getattr(function, "__name__", "")

    def read(path: object, *_: object, **__: object) -> object:
        if not isinstance(path, (str, os.PathLike)):
            return _AGAIN
        return Path(path).read_bytes()

    if stage == "read":

        def decode(content: object, _: object, *args: object, **more: object) -> object:
            cv2 = sys.modules.get("cv2")
            if cv2 is not None and name == "imread":
                flags = args[0] if args else more.get("flags", cv2.IMREAD_COLOR)
                return cast("object", cv2.imdecode(sys.modules["numpy"].frombuffer(content, "uint8"), flags))
            return function(io.BytesIO(cast("bytes", content)), *args, **more)

        return _keep_calls(function, lambda _, *args, **more: read(*args, **more), decode)

    def give(kept: object, *args: object, **more: object) -> object:
        read(*args, **more)
        return kept

    return _keep_calls(function, give=give)


class _Entries(list[object]):
    """The entries of a folder, of which ``os.scandir`` gives an iterator and a context."""

    def __enter__(self) -> Iterator[object]:
        return iter(self)

    def __exit__(self, *_: object) -> None:
        pass

    def __next__(self) -> object:
        if not self:
            raise StopIteration
        return self.pop(0)


def _replace_pictures() -> None:
    """Give Pillow's images, which decode when their pixels are wanted first, the pixels that they had."""
    library = sys.modules.get("PIL.Image")
    if library is not None:
        library.init()  # imports the classes of all formats
    module = sys.modules.get("PIL.ImageFile")
    kinds: list[type] = [] if module is None else [module.ImageFile]
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if "load" in vars(kind):
            setattr(kind, "load", _keep_pixels(vars(kind)["load"]))  # noqa: B010  # of any class of Pillow's


_PICTURE: Final = ("_im", "im", "_mode", "_size", "palette", "info", "pyaccess", "readonly", "tile")


def _keep_pixels(load: Function) -> Function:
    def keep(_: object, image: object) -> object:
        return {name: value for name, value in vars(image).items() if name in _PICTURE}

    def give(kept: object, image: object) -> object:
        file = getattr(image, "fp", None)
        if file is not None:
            file.read()
        vars(image).update(cast("dict[str, object]", kept))
        pixels = load(image)
        # Pillow copies the pixels before it changes them. To copy them here may cost half a decode.
        cast("Any", image).readonly = 1
        return pixels

    given = _keep_calls(load, keep, give)

    @functools.wraps(load)
    def call(image: object) -> object:
        had = vars(image)
        return load(image) if had.get("_im", had.get("im")) is not None else given(image)

    return call
