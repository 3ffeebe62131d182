"""Which changes of the user's own file are tried: the first advice, penstock's loader and dataset, files.

A :class:`LoaderSite` is found while the script's objects are there; the candidates are made of it and of the advice.
"""

from __future__ import annotations

import inspect
import io
import json
import re
import tokenize
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.datasets.user_code import is_user_file, unwrap_function
from penstock.doctor.fixes.edits import Edit, NotEditableError, Position, PythonSource
from penstock.doctor.judge.diagnosis import ONE_THREAD, Advice
from penstock.doctor.trials.script_runs import ScriptChange
from penstock.doctor.watching.loaders.loader_settings import describe_loader
from penstock.errors import ArgumentError
from penstock.loader.tuning import AutoCount, is_divided

if TYPE_CHECKING:
    import ast

    from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
    from penstock.doctor.watching.watcher import Watcher

__all__ = ["FixCandidate", "LoaderSite", "advised_candidates", "find_site", "own_candidates", "parse_change"]

_ARGUMENTS: Final = frozenset({"num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order"})
_PAIR: Final = re.compile(r"([a-z_]+)=(\d+|True|False|None)")
_MOST_NESTED: Final = 8
_OWN_LOADER: Final = "penstock's loader in the place of torch's, with the same batches"
_COMPILED: Final = "the dataset compiled (pixels differ by at most one of 255 levels, random numbers are others)"
_AUTO: Final = 'num_workers="auto"'
_KEPT: Final = "files that are opened or read again for each sample, kept by each process"
_MAPPED: Final = 'mmap_mode="r" for numpy.load, of which a part is used'


@dataclass(frozen=True, slots=True)
class _File:
    """A file of the user's, and what it held."""

    name: str  # as code of it is called
    content: bytes
    encoding: str

    @classmethod
    def read(cls, name: str) -> _File:
        content = Path(name).read_bytes()
        return cls(name, content, tokenize.detect_encoding(io.BytesIO(content).readline)[0])

    @property
    def text(self) -> str:
        return self.content.decode(self.encoding)


@dataclass(frozen=True, slots=True)
class FixCandidate:
    """A change that is tried."""

    change: str  # in words
    trial: ScriptChange
    file: _File | None = None  # that is edited; None where it cannot be
    edited: str = ""  # its text then
    where: str = ""  # and the line of code, where no file is edited
    advice: int = -1  # of the diagnosis, by its number


@dataclass(frozen=True, slots=True)
class LoaderSite:
    """Where the script makes the loader that is reported, and what it is."""

    library: str  # "torch" or "penstock"
    class_name: str
    parameters: tuple[str, ...]  # that may be given by place
    may_choose: bool  # whether any worker may build any batch, and their number is given
    file: str  # of the user; "" if the place is not known
    position: Position  # of the call in it
    reader: tuple[str, int] | None  # file and first line of the dataset's ``__getitem__``, if it is the user's
    compiles: bool = False  # whether ``penstock.torch.compile`` makes another dataset of it


def find_site(watcher: Watcher, watch: LoaderWatch) -> LoaderSite:
    """Return where the script made a loader."""
    loader, place = watch.loader, watcher.made.find_place(watch.loader)
    given = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = inspect.signature(type(loader)).parameters.values()
    return LoaderSite(
        library=describe_loader(loader).library,
        class_name=type(loader).__name__,
        parameters=tuple(each.name for each in parameters if each.kind is given),
        may_choose=not isinstance(loader.num_workers, AutoCount) and not is_divided(loader.dataset),
        file="" if place is None else place[0].co_filename,
        position=(None,) * 4 if place is None else list(place[0].co_positions())[place[1] // 2],
        reader=_find_reader(loader.dataset),
        compiles=_compiles(loader.dataset),
    )


def _compiles(dataset: object) -> bool:
    with suppress(ImportError, ArgumentError):
        from penstock.torch import compile as compile_dataset

        return compile_dataset(dataset) is not dataset
    return False


def _find_reader(dataset: object) -> tuple[str, int] | None:
    """Return the file and the first line of the method of the user's that reads a sample; also in subsets of it."""
    for _ in range(_MOST_NESTED):
        method = unwrap_function(getattr(type(dataset), "__getitem__", None))
        if isinstance(method, types.FunctionType) and is_user_file(method.__code__.co_filename):
            return method.__code__.co_filename, method.__code__.co_firstlineno
        dataset = getattr(dataset, "dataset", None)
    return None


def parse_change(text: str) -> dict[str, object]:
    """Return the loader's arguments in an advice such as ``num_workers=4, prefetch_factor=4``.

    It is empty if it is another one.
    """
    pairs = [(name, json.loads(value.lower().replace("none", "null"))) for name, value in _PAIR.findall(text)]
    rest = _PAIR.sub("", text).strip(" ,")
    return {} if rest or any(name not in _ARGUMENTS for name, _ in pairs) else dict(pairs)


def advised_candidates(advice: Sequence[Advice], site: LoaderSite) -> Iterator[FixCandidate]:
    """Yield each advice that is arguments of the loader, or one thread of torch's.

    Where the call cannot be edited, the arguments are set from outside.
    """
    for number, each in enumerate(advice):
        threads = each.change.endswith(ONE_THREAD)
        values = parse_change(each.change.removesuffix(ONE_THREAD).removesuffix(", with "))
        if values or threads:
            texts = {name: repr(value) for name, value in values.items()}
            try:
                edit = partial(_edit_loader, site=site, values=texts, threads=threads)
                yield _make_candidate(each.change, site.file, edit, number)
            except NotEditableError as error:
                place = f"{site.file}:{site.position[0]}" if site.file else "the library that makes the loader"
                where = f"{place} ({error}): {each.code}"
                trial = ScriptChange(arguments=values, one_thread=threads)
                yield FixCandidate(each.change, trial, where=where, advice=number)


def own_candidates(site: LoaderSite) -> Iterator[FixCandidate | str]:
    """Yield what no advice says: penstock's loader and dataset, also with ``num_workers="auto"``; files mapped or kept.

    In the place of one that cannot be written, yield why.
    """
    is_torch = site.library == "torch"
    edits: list[tuple[str, str, Callable[[PythonSource], list[Edit]]]] = []
    own = [_OWN_LOADER] if is_torch else []
    edits += [(each, site.file, partial(_edit_loader, site=site, own=True)) for each in own]
    if site.compiles:
        own = ["penstock's loader", _COMPILED] if is_torch else [_COMPILED]
        edits.append((", and ".join(own), site.file, partial(_edit_loader, site=site, own=is_torch, compiled=True)))
    if site.may_choose:
        auto = partial(_edit_loader, site=site, values={"num_workers": '"auto"'}, own=is_torch, compiled=site.compiles)
        edits.append((", and ".join([*own, _AUTO]), site.file, auto))
    if site.reader is not None:
        file, line = site.reader
        edits += [(_MAPPED, file, lambda each: each.map_files(line)), (_KEPT, file, lambda each: each.keep_files(line))]
    for change, file, edit in edits:
        try:
            yield _make_candidate(change, file, edit)
        except NotEditableError as error:
            if change not in {_MAPPED, _KEPT}:  # few datasets do either
                yield f"{change}: {error}"


def _edit_loader(
    source: PythonSource, site: LoaderSite, values: Mapping[str, str] | None = None, *, own: bool = False,
    compiled: bool = False, threads: bool = False,
) -> list[Edit]:  # fmt: skip
    """Return edits that give the loader arguments, make it and its dataset penstock's, and set torch's threads."""
    edits = [source.set_threads()] if threads else []
    if own:
        edits += source.import_loader(_find_loader(source, site))
    if compiled:
        edits.append(source.add_statement("import penstock.torch"))
        edits += source.wrap_argument(_find_loader(source, site), "dataset", "penstock.torch.compile", site.parameters)
    return [*edits, *(source.set_arguments(_find_loader(source, site), values, site.parameters) if values else ())]


def _find_loader(source: PythonSource, site: LoaderSite) -> ast.Call:
    """Return the call that makes the loader."""
    call = source.find_call(site.position)
    name = source.resolve(call.func).rpartition(".")[2]
    if name != site.class_name:
        raise NotEditableError("the loader is not made by a call of its class there")
    return call


def _make_candidate(
    change: str, name: str, edit: Callable[[PythonSource], list[Edit]], advice: int = -1
) -> FixCandidate:
    """Return the change of a file. Raises NotEditableError if it cannot be edited, or stays as it is."""
    if not name:
        raise NotEditableError("it is not known where the script makes the loader")
    try:
        file = _File.read(name)
        source = PythonSource(file.text)
    except (OSError, SyntaxError, ValueError) as error:
        raise NotEditableError(f"{name} cannot be read") from error
    edited = source.apply(edit(source))
    if edited == file.text:
        raise NotEditableError("there is nothing to change")
    trial = ScriptChange({name: edited}, finds_workers=_AUTO in change)
    return FixCandidate(change, trial, file, edited, advice=advice)
