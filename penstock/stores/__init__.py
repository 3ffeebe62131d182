"""Stores: containers of records, chosen by scheme, suffix or content.

A new store is one file or folder here with a subclass of :class:`~penstock.stores.base.Store`, and one row
of the table in :mod:`penstock.stores.kinds`, which also enrols it in ``tests/conformance/test_stores.py``. The first
store that recognises a path opens it. A container without random access is a
:class:`~penstock.stores.streams.ShardStream`, registered in :data:`STREAMS`. A store over an object of another library
in memory is registered in :data:`OBJECTS`, and says by the class method ``wraps(value)`` what it takes.

Where to find what:

- which stores there are, what each reads and writes: the table ``kinds.py``; ``docs/stores.md``
- where a store is, its sidecar files, and how passwords stay out of messages: ``location.py``;
  ``docs/decisions/0018-*``
- how a container of another program is read: ``container.py``, one folder a family; ``docs/decisions/0021-*``
- containers that are read from their beginning: ``streams.py``, ``tar/stream.py``
- which column is the image, the label, the key: ``fields/``
- how a killed writer is resumed, and who may write: ``common/journal.py``
- who fetches bytes of object storage: ``remote/``
- what a conversion wrote beside a container: ``joined.py``
- what a pack was made from, and when it is used again: ``origin.py``; ``docs/decisions/0016-*``
- who reads ahead of what is planned: ``Store.prefetch`` in ``base.py``, ``common/read_ahead.py``
- which versions of formats are read: ``STABILITY.md``, ``tests/formats/``
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from penstock.errors import ArgumentError, PenstockError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES, refuse_remote
from penstock.registry import Registry
from penstock.stores.common.mirrors import read_mended
from penstock.stores.kinds import STORES
from penstock.stores.location import Location, is_remote_url, read_file_url
from penstock.stores.patterns import expand_shards

if TYPE_CHECKING:
    from penstock.stores.base import Store

__all__ = [
    "ALIASES",
    "OBJECTS",
    "STORES",
    "STREAMS",
    "StoreLike",
    "expand_paths",
    "find",
    "find_remote",
    "list_layouts",
    "open",
    "refuse_unknown_options",
]

StoreLike = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""What names a store: a path, a URL, a pattern or a list of paths."""

ALIASES: Final = {"mongodb+srv": "mongodb", "gridfs+srv": "gridfs"}
"""Schemes of URLs that name a kind in another way: the servers are found by DNS."""

_FILES: Final = {
    (".csv", ".tsv", ".jsonl", ".ndjson"): "; it is a table: pack it first (penstock pack TABLE DST)",
    (".json",): "; a table is packed first (penstock pack TABLE DST), and so are annotations (--format coco)",
    (".xlsx", ".xls", ".ods"): "; it is a spreadsheet: save it as CSV UTF-8, and pack that (penstock pack TABLE DST)",
}
"""What to do with files that are no stores, by their endings."""

_UNWRITTEN: Final = (".gz", ".zst", ".zip", ".npy", ".npz", ".pkl", ".pt", ".csv", ".tsv", ".json", ".jsonl")
"""Endings of other formats, beside those of kinds: a pack under such a name would be taken for one of them."""

STREAMS = Registry("stream of shards")
STREAMS.register("tar", "penstock.stores.tar.stream:TarStream")

PLACE_OPTIONS: Final[Sequence[str]] = ("storage_options", "cache", "cache_size")
"""Options of every store in object storage, beside those of its kind."""

OBJECTS = Registry("store over an object in memory")
OBJECTS.register("huggingface", "penstock.stores.arrow.hugging_face:HuggingFaceStore")


def open(url: StoreLike | object, *, layout: str | None = None, **options: object) -> Store:  # noqa: A001  # `ps.open` is the promised name
    """Open a store for reading.

    Parameters
    ----------
    url : str, path, Location, or sequence of paths
        ``"photos.lmdb"``, ``"photos/"``, or with the kind given: ``"lmdb://photos.lmdb"``, ``"files:///data/photos"``.
        Stores of several files take a list of them, or a pattern: ``"train-{000..099}.tar"``, ``"train-*.parquet"``.
        URLs of object storage, of web servers and of what fsspec reads, and patterns of them: ``"s3://bucket/*.tar"``.
        Also a ``datasets.Dataset`` (:class:`~penstock.stores.arrow.hugging_face.HuggingFaceStore`).
    layout : str, optional
        The layout of a container that other programs write in several ways, such as ``"pairs"`` for an LMDB
        environment. By default it is found by the content.
    storage_options : mapping, optional
        For ``s3://``, ``gs://``, ``az://`` and ``http(s)://``: options of the client, as the library obstore names
        them, such as ``{"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000"}``; for ``hf://``, ``ftp://``,
        ``sftp://`` and others, as fsspec names them. What is absent is taken from where the place's own tools look:
        variables of the environment, AWS's profiles, the role of the machine.
    cache : path, optional
        The folder in which bytes of such stores are kept, by default ``~/.cache/penstock/remote``. All processes of a
        machine may share it.
    cache_size : int or str, optional
        The most bytes of that folder, such as ``"200GB"``; by default 50 GB. What does not fit is fetched again.
    **options
        Options of the kind: ``classes=[...]`` for a folder sets names and numbers of the classes
        (:class:`~penstock.stores.images.store.FilesStore`); ``check=False`` for a pack leaves checksums unverified
        (:class:`~penstock.stores.lmdb_pack.store.LmdbStore`).

    Returns
    -------
    Store
        The caller closes it, or uses it in a ``with`` statement.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If something is there that no store recognises.
    IncompleteStoreError
        If it is a pack that was never finished.
    ArgumentError
        If the scheme or the layout is unknown, or the kind has no such option.
    """
    if not isinstance(url, str | bytes | os.PathLike | list | tuple):
        for name in OBJECTS:
            wrapper = OBJECTS.get(name)
            if wrapper.wraps(url):
                refuse_unknown_options(wrapper, wrapper.__init__, options)
                wrapped: Store = wrapper(url, **options)
                return wrapped
    if urls := _list_urls(url):
        of_place = {name: options.pop(name) for name in PLACE_OPTIONS if name in options}
        kind, location = find_remote(urls, layout, of_place)
    else:
        if isinstance(url, str) and url.lower().startswith("file://"):  # a place as others, which needs no options
            options = {name: value for name, value in options.items() if name not in PLACE_OPTIONS}
        kind, location = find(url, layout=layout)  # type: ignore[arg-type]  # any other object: its error is the answer
    has_failed = False

    def make() -> Store:
        nonlocal has_failed
        chosen, where = kind, location
        if has_failed:  # damaged bytes of a remote object look like those of another kind
            chosen = find(location.shards[0] if location.shards else location.path, layout=layout)[0]
            where = replace(location, scheme=chosen.kind)
        has_failed = True
        refuse_unknown_options(chosen, chosen.__init__, options)
        return _join_sidecar(chosen(where, **options))

    try:
        if location.remote is not None and kind.kind != "files":
            return read_mended(make, (ArgumentError,))
        refuse_unknown_options(kind, kind.__init__, options)
        return _join_sidecar(kind(location, **options))  # not by another function: warnings name who calls this one
    except PenstockError as error:
        location.name_source(error)
        raise


def find(url: StoreLike, *, to_write: bool = False, layout: str | None = None) -> tuple[type[Store], Location]:
    """Return the class that opens ``url``, and its location.

    Parameters
    ----------
    url : str, path, Location, or sequence of paths
        As for :func:`open`.
    to_write : bool
        Whether a store is to be written there. Then scheme and suffix choose the kind, whatever is there, and LMDB is
        the default.
    layout : str, optional
        As for :func:`open`; only kinds of this layout are considered.

    Raises
    ------
    ArgumentError
        If it is neither text nor a path, or its scheme or layout is unknown; or if a store is to be written of a kind
        that is not written, or to a path without a scheme whose ending is that of such a format.
    StoreNotFoundError
        If it has no scheme, and nothing is at the path.
    StoreFormatError
        If it has no scheme, and no kind of store recognises what is at the path.
    """
    if isinstance(url, Location):
        return STORES.get(ALIASES.get(url.scheme, url.scheme)), url
    if not to_write and (urls := _list_urls(url)):
        return find_remote(urls, layout, {})
    refuse_remote(url, "written" if to_write else "read")
    given = list(url) if isinstance(url, list | tuple) else [url]
    texts = [_to_text(each) for each in given]
    if not texts:
        raise ArgumentError("a store must be a path or a URL, got an empty list")
    of_layout = None if layout is None else _find_kinds(layout)
    scheme, _ = Location.split_scheme(texts[0])
    if scheme:
        named: type[Store] = STORES.get(ALIASES.get(scheme, scheme))
        if of_layout is not None and named not in of_layout:
            raise ArgumentError(f"layout must be that of the scheme {scheme!r}, got {layout!r}")
        if to_write:
            _refuse_unwritten(named, texts[0])
        if named.is_remote:
            return named, named.locate(texts[0])
        of_layout = [named]
        texts = [Location.split_scheme(text)[1] for text in texts]
    if to_write:
        return _choose_written(texts[0], of_layout)
    paths = expand_paths(texts)
    if not scheme and (missing := [path for path in paths if not os.path.lexists(path)]):
        raise StoreNotFoundError("there is no store at this path", store=missing[0])
    for kind in _candidates(paths[0]) if of_layout is None else of_layout:
        if (scheme or kind.recognises(paths[0])) and (len(paths) == 1 or kind.takes_shards):
            return kind, kind.locate(paths[0] if len(paths) == 1 else paths)
    if layout is not None:
        found = next((kind for kind in _candidates(paths[0]) if kind.recognises(paths[0])), None)
        content = "" if found is None else f"; its content is that of {found.layout or found.kind!r}"
        raise StoreFormatError(f"this is not a container of layout {layout!r}{content}", store=paths[0])
    hint = next((advice for suffixes, advice in _FILES.items() if paths[0].lower().endswith(suffixes)), "")
    raise StoreFormatError(
        f"this is neither a folder of images nor a pack (kinds of stores: {', '.join(STORES)}){hint}", store=paths[0]
    )


def _list_urls(given: object) -> list[str]:
    """Return the URLs of remote places that were given; none if paths were.

    Raises ArgumentError if there are both.
    """
    several = list(given) if isinstance(given, list | tuple) else [given]
    urls = [str(each) for each in several if is_remote_url(each)]
    if urls and len(urls) < len(several):
        raise ArgumentError("the files of a store must all be paths, or all be URLs; got both")
    return urls


def find_remote(urls: Sequence[str], layout: str | None, options: Mapping[str, object]) -> tuple[type[Store], Location]:
    """Find the kind of URLs and :data:`PLACE_OPTIONS`; raises StoreError where the place cannot be asked."""
    from penstock.stores.remote import opening  # stores on this machine do not need it
    from penstock.stores.remote.shards import find_remote_shards, is_url_pattern

    def choose(path: str) -> type[Store]:
        return find(path, layout=layout)[0]

    if len(urls) == 1 and not is_url_pattern(urls[0]):
        return opening.find_remote(urls[0], choose, options)
    return find_remote_shards(urls, choose, options)


def expand_paths(paths: Sequence[str]) -> list[str]:
    """Paths, with patterns replaced by the paths that they give.

    Raises
    ------
    StoreNotFoundError
        If a pattern gives no path.
    """
    expanded = [(path, expand_shards(path)) for path in paths]
    if empty := [path for path, found in expanded if not found]:
        raise StoreNotFoundError("there is no file that fits this pattern", store=empty[0])
    return [path for _, found in expanded for path in found]


def refuse_unknown_options(kind: type[Store], function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raise ArgumentError if ``function`` of a kind of stores has no such option."""
    allowed = _list_options(function)
    for name in options:
        if name not in allowed:
            has = ", ".join(allowed) or "none"
            others = ""
            if kind.layout and function is kind.__init__:
                layouts = [each for each in list_layouts() if name in _list_options(_find_kinds(each)[0].__init__)]
                others = (
                    f". The layouts with this option are {', '.join(layouts)}; layout= states one" if layouts else ""
                )
            raise ArgumentError(f"a store of kind {kind.kind!r} has no option {name!r}; it has: {has}{others}")


def _list_options(function: Callable[..., object]) -> list[str]:
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind is each.KEYWORD_ONLY]


def _join_sidecar(store: Store) -> Store:
    """The store with the fields that a conversion wrote beside it, if it did."""
    if not store.location.is_local or not os.path.lexists(store.location.sidecar("fields")):
        return store
    from penstock.stores.joined import join  # most stores have no sidecar

    return join(store)


def list_layouts() -> list[str]:
    """Names of the layouts that ``layout=`` may name."""
    return [*dict.fromkeys(kind.layout for kind in map(STORES.try_get, STORES) if kind is not None and kind.layout)]


def _find_kinds(layout: str) -> list[type[Store]]:
    if layout not in (known := list_layouts()):
        raise ArgumentError(f"layout must be one of {', '.join(known) or 'none'}, got {layout!r}")
    return [kind for kind in map(STORES.try_get, STORES) if kind is not None and kind.layout == layout]


def _choose_written(path: str, of_layout: Sequence[type[Store]] | None) -> tuple[type[Store], Location]:
    default = STORES.get("lmdb") if of_layout is None else of_layout[0]
    name = path.rstrip("/")
    if of_layout is not None:
        return default, default.locate(path)
    chosen = next((each for each in STORES if name.endswith(STORES.list_written(each))), None)
    unwritten = (*(each for row in STORES.rows() for each in row.suffixes), *_UNWRITTEN)
    if chosen is None and (ending := next((each for each in unwritten if fnmatchcase(name.lower(), f"*{each}")), "")):
        raise _make_unwritten_error(f"files of format {ending} are not written", f"the kind: lmdb://{name}", name)
    kind = default if chosen is None else STORES.get(chosen)
    return kind, kind.locate(path)


def _refuse_unwritten(kind: type[Store], path: str) -> None:
    if kind.writer.__qualname__ == "WritableKind.writer":  # the one that refuses
        hint = "another kind, such as files://FOLDER or lmdb://PATH"
        place = str(kind.locate(path)) if kind.is_remote else path  # a URL may hold a password
        raise _make_unwritten_error(f"stores of kind {kind.kind!r} cannot be written", hint, place)


def _make_unwritten_error(what: str, hint: str, place: str) -> ArgumentError:
    written = ", ".join(suffix for each in STORES for suffix in STORES.list_written(each))
    return ArgumentError(
        f"{what}; the endings of what is written are {written}, or give {hint}; got destination {place!r}"
    )


def _candidates(path: str) -> Iterator[type[Store]]:
    """Yield the kinds that may be at a path, each imported when it is reached."""
    last: list[str] = []
    for name in STORES:
        if name == "files" and os.path.isdir(path) and not _has_image(path):  # noqa: PTH112  # a text
            last.append(name)  # perhaps it is of a kind that this program or another distribution adds
        elif STORES.row(name).may_be_at(path) and (kind := STORES.try_get(name)) is not None:
            yield kind
    yield from map(STORES.get, last)


def _has_image(folder: str) -> bool:
    """Return whether one of the first files below a folder is an image, by its name.

    Folders are not listed to their end.
    """

    def iter_names(path: str) -> Iterator[str]:
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from iter_names(entry.path)
                else:
                    yield entry.name

    return any(name.lower().endswith(tuple(IMAGE_SUFFIXES)) for name in itertools.islice(iter_names(folder), 1000))


def _to_text(url: object) -> str:
    if not isinstance(url, str | bytes | os.PathLike):
        raise ArgumentError(
            f"a store must be a path or a URL, got {type(url).__name__}; put images into a folder, one sub-folder a "
            "class, and give its path"
        )
    text = read_file_url(os.fsdecode(url))
    if not text:
        raise ArgumentError("a store must be a path or a URL, got an empty path")
    return text
