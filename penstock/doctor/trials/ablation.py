"""Ablation: a loader whose stage costs nothing, because what it gives was kept. What that brings is what it costs.

::

    the loader's first batch     its samples are made once; what each call of the stage gives is kept, call by call
    any batch after that         the same samples, whatever is asked for; the stage's n-th call gives what was kept
                                 read, decode    calls of the functions of stage_names.STAGE_OF_FUNCTION
                                 sample          all of ``dataset[index]``
                                 collate         the first batch is given again
                                 transport       batches are built, and a number is sent in their place

Names of functions are replaced in all modules of the process that builds, so this is for a trial's child only. Calls
of a function are told apart by their order within a sample: a dataset that draws a file by chance gets the first one
again.
"""

from __future__ import annotations

import copy
import functools
import io
import operator
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, Self, cast

from penstock.doctor.watching.stage_names import HANDLES, STAGE_OF_FUNCTION

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

    Function = Callable[..., object]

__all__ = ["GivenStage", "NotApplicableError", "give_back"]

GivenStage = Literal["sample", "read", "decode", "collate", "transport"]

_MOST_FILE: Final = 1 << 26
"""Larger files are read again."""
_UNBATCHED: Final = 4
"""Samples that are kept where the dataset makes batches itself."""
_PLAIN: Final = (int, float, complex, str, bytes, bytearray, memoryview, type(None), tuple, list, dict, set)
_AGAIN: Final = object()
"""Is kept where a call has to be made again."""


class NotApplicableError(Exception):
    """A change means nothing for this loader."""


def give_back(fields: dict[str, object], loader: WatchedLoader, stage: GivenStage) -> None:
    """Set the attributes of a copy of ``loader`` so that ``stage`` costs nothing.

    Raises
    ------
    NotApplicableError
        If the loader has no such stage, or samples do not pass it one by one.
    """
    if stage == "collate":
        fields["collate_fn"] = _KeptBatch(loader.collate_fn)
    elif stage == "transport":
        if not loader.num_workers:
            raise NotApplicableError("batches are built where they are used")
        fields["collate_fn"] = _UnsentBatch(loader.collate_fn)
    else:
        fields["dataset"] = _make_dataset(loader, stage)


def _make_dataset(loader: WatchedLoader, stage: GivenStage) -> _KeptSamples | _KeptStream:
    dataset = loader.dataset
    if hasattr(dataset, "fill") or hasattr(dataset, "load_samples"):
        raise NotApplicableError("the dataset fills batches itself")
    order, batches = getattr(loader, "_order", None), getattr(loader, "batch_sampler", None)
    if order.is_stream if order is not None else getattr(loader, "_dataset_kind", 0):
        return _KeptStream(dataset, stage, getattr(loader, "batch_size", None) or _UNBATCHED)
    if batches is None:
        indices = list(islice(getattr(loader, "sampler", ()), _UNBATCHED))
        kept = _KeptSamples(dataset, stage, indices)
    elif hasattr(dataset, "__getitems__"):
        kept = _KeptBatches(dataset, stage, [next(iter(batches))])
    else:
        kept = _KeptSamples(dataset, stage, list(next(iter(batches))))
    kept.fill()
    return kept


class _Dataset(Protocol):
    """What a loader may ask a user's dataset for."""

    def __getitem__(self, index: object) -> object: ...

    def __getitems__(self, indices: object) -> object: ...

    def __iter__(self) -> Iterator[object]: ...

    def __len__(self) -> int: ...


class _Kept:
    """A dataset that takes the place of another, whose attributes it has."""

    def __init__(self, dataset: object, stage: GivenStage) -> None:
        self._dataset, self._stage = cast("_Dataset", dataset), stage

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):  # pickle asks before there is a dataset
            raise AttributeError(name)
        return cast("object", getattr(self._dataset, name))

    def _check_known(self, calls: Iterable[_Calls]) -> None:
        if self._stage != "sample" and not any(calls):
            raise NotApplicableError(f"no call is known that belongs to the stage {self._stage}")


class _KeptSamples(_Kept):
    """Few samples, in turn, for all indices. A worker has a copy that was filled before it began."""

    def __init__(self, dataset: object, stage: GivenStage, indices: list[object]) -> None:
        super().__init__(dataset, stage)
        self._indices, self._next = indices, 0
        self._samples: list[object] = []
        self._calls: list[_Calls] = []

    def fill(self) -> None:
        """Make each sample once; what a dataset opens meanwhile is its copy's, as workers may not share it."""
        own = self._dataset
        _replace_functions(self._stage, own)
        self._dataset, self._calls = copy.copy(own), [_Calls() for _ in self._indices]
        self._samples = [self._make(number) for number in range(len(self._indices))]
        self._dataset = own
        self._check_known(self._calls)

    def _make(self, number: int) -> object:
        with _Sample(self._calls[number]):
            return self._ask(self._indices[number])

    def _ask(self, index: object) -> object:
        return self._dataset[index]

    def _take(self) -> object:
        if not self._samples:  # in a process that was not forked
            self.fill()
        number = self._next
        self._next = (number + 1) % len(self._indices)
        return self._samples[number] if self._stage == "sample" else self._make(number)

    def __getstate__(self) -> Mapping[str, object]:
        return {**vars(self), "_samples": [], "_calls": []}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: object) -> object:
        return self._take()


class _KeptBatches(_KeptSamples):
    """The same for a dataset that is asked for all samples of a batch at once."""

    def _ask(self, index: object) -> object:
        return self._dataset.__getitems__(index)

    def __getitems__(self, indices: Sequence[object]) -> object:
        samples = self._take()
        return samples[: len(indices)] if isinstance(samples, list) else samples


class _KeptStream(_Kept):
    """The first samples of a stream, again and again: from memory, or from a stream that begins anew."""

    def __init__(self, dataset: object, stage: GivenStage, count: int) -> None:
        super().__init__(dataset, stage)
        self._count = count

    def __iter__(self) -> Iterator[object]:
        if self._stage == "sample":
            yield from cycle(islice(iter(self._dataset), self._count))
            return
        _replace_functions(self._stage, self._dataset)
        calls = [_Calls() for _ in range(self._count)]
        while True:
            with _Sample(calls[0]):  # a generator begins with its first sample
                samples = iter(self._dataset)
            for each in calls:
                with _Sample(each):
                    sample = next(samples, _AGAIN)
                if sample is _AGAIN:
                    break
                yield sample
            self._check_known(calls)


class _KeptBatch:
    """A ``collate_fn`` that gives its first batch again."""

    def __init__(self, collate: Function) -> None:
        self._collate, self._batches = collate, list[object]()

    def __call__(self, samples: object) -> object:
        if not self._batches:
            self._batches.append(self._collate(samples))
        return self._batches[0]


class _UnsentBatch:
    """A ``collate_fn`` that builds a batch and gives a number."""

    def __init__(self, collate: Function) -> None:
        self._collate = collate

    def __call__(self, samples: object) -> int:
        self._collate(samples)
        return 0


class _Calls(dict[str, list[object]]):
    """What the calls of a sample gave, by the function's name and in their order."""


class _Present(threading.local):
    """The sample that a thread makes; ``calls`` is None outside of one, and within a call that is kept."""

    calls: _Calls | None = None
    seen: dict[str, int]


_present: Final = _Present()


class _Sample:
    """A context in which a sample is made, with what its calls gave before."""

    __slots__ = ("_calls",)

    def __init__(self, calls: _Calls) -> None:
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


def _replace_functions(stage: GivenStage, dataset: object) -> None:
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
        core = "_im" if "_im" in vars(image) else "im"
        vars(image)[core] = vars(image)[core].copy()
        return load(image)

    given = _keep_calls(load, keep, give)

    @functools.wraps(load)
    def call(image: object) -> object:
        had = vars(image)
        return load(image) if had.get("_im", had.get("im")) is not None else given(image)

    return call
