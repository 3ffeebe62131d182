"""The commands ``penstock cache``: what of remote stores is kept on this machine; delete it, or fetch it beforehand."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.app import INTERRUPTED, app
from penstock.cli.arguments import JsonOption, ReportFormat, ReportOption, StoreOptions, parse_options
from penstock.cli.printing import print_error, print_json, print_line, print_list
from penstock.errors import ArgumentError
from penstock.wording import counted, format_bytes

if TYPE_CHECKING:
    from penstock.stores.remote.cached_stores import CachedStore

__all__ = ["cache", "clear", "info", "warm"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}

cache = typer.Typer(
    no_args_is_help=True,
    help="Show, delete and fetch the copies of remote stores on this machine.",
)
app.add_typer(cache, name="cache")

CacheOption = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="The cache folder; by default `~/.cache/penstock/remote`."),
]


@cache.command()
def info(
    folder: Annotated[
        str | None, typer.Argument(metavar="FOLDER", help="The cache folder; by default `~/.cache/penstock/remote`.")
    ] = None,
    *,
    as_json: JsonOption = False,
    report: ReportOption = ReportFormat.TEXT,
) -> None:
    """Show which stores a cache folder has: by URL and version, bytes, part of the store, last use. Asks no server."""
    from penstock.stores.remote.cache import DEFAULT_NBYTES
    from penstock.stores.remote.cached_stores import fold_shards, list_cached

    path = _find_folder(folder)
    stores = fold_shards(list_cached(path))
    nbytes = sum(each.nbytes for each in stores)
    free = shutil.disk_usage(path).free if path.is_dir() else None
    if as_json or report is ReportFormat.JSON:
        print_json({
            "folder": str(path), "nbytes": nbytes, "default_limit_nbytes": DEFAULT_NBYTES, "free_nbytes": free,
            "stores": [
                {**each._asdict(), "path": str(each.path), "share": each.share} for each in stores
            ],
        })  # fmt: skip
        return
    room = "" if free is None else f", {format_bytes(free)} of the disk are free"
    limit = f"cache_size= is the limit, by default {format_bytes(DEFAULT_NBYTES)}"
    print_line(f"{path}: {counted(len(stores), 'store')}, {format_bytes(nbytes)}{room}; {limit}")
    print_list(map(_describe_cached_store, stores), len(stores))


@cache.command()
def clear(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="The store whose copies are deleted, or a URL above stores.")
    ] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Delete the copies of all stores.")] = False,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Delete only what nobody has opened for so long, such as `7d`, `12h`, `30m`."),
    ] = None,
    cache: CacheOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete copies of remote stores. A running reader keeps the bytes that it has, and fetches others again."""
    from penstock.stores.remote.cached_stores import clear as run
    from penstock.stores.remote.cached_stores import fold_shards, list_cached

    if url is not None if everything else (url or older_than) is None:
        raise ArgumentError("give a URL, --all or --older-than, and not both a URL and --all")
    folder = _find_folder(cache)
    before = fold_shards(list_cached(folder))
    found = run(folder, url, older_than_s=0.0 if older_than is None else _parse_age(older_than))
    deleted = [each for each in before if not each.path.exists()]
    if as_json:
        print_json({"nbytes": sum(each.nbytes for each in found), "stores": deleted})
        return
    print_line(f"deleted {counted(len(deleted), 'store')}, {format_bytes(sum(each.nbytes for each in found))}")
    print_list(map(_describe_cached_store, deleted), len(deleted))


@cache.command()
def warm(
    url: Annotated[str, typer.Argument(metavar="URL", help="The store, such as `s3://bucket/photos.lmdb`.")],
    *,
    cache: CacheOption = None,
    cache_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most bytes of the cache folder, such as `200GB`; by default 50 GB."),
    ] = None,
    option: StoreOptions = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch all records of a store to the cache. What is there is not fetched, so that a second run goes on.

    If the store does not fit, as much as fits is fetched; the command says what part that is.
    """
    from penstock import stores
    from penstock.progress import show_progress
    from penstock.stores.location import is_remote_url
    from penstock.stores.remote.cache import CacheFolder, parse_size
    from penstock.stores.remote.cached_stores import count_room, count_store_nbytes, list_cached
    from penstock.stores.remote.cached_stores import warm as run

    if not is_remote_url(url):
        raise ArgumentError(f"the store must be at a URL of object storage or of a web server, got {url!r}")
    folder = CacheFolder(_find_folder(cache), parse_size(cache_size))
    options = {**parse_options(option), "cache": folder.path, "cache_size": folder.max_nbytes}
    with stores.open(url, layout=None, **options) as store:
        nbytes, room = count_store_nbytes(store), max(count_room(folder), 0)
        there = sum(each.nbytes for each in list_cached(folder.path) if f"{each.url}/".startswith(f"{store.url}/"))
        missing = max(nbytes - there, 0)
        fits = "" if room >= missing else f"; the cache has room for {format_bytes(room)}, {room / missing:.0%}"
        planned = f"{url}: {format_bytes(nbytes)}, of which {format_bytes(missing)} are to be fetched{fits}"
        print_line(planned, file=sys.stderr if as_json else None)
        try:
            with show_progress("fetching") as report:
                warmed = run(store, folder, report)
        except KeyboardInterrupt:
            print_error("interrupted; what was fetched is kept, and the same command goes on")
            raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json({"store": url, "nbytes": warmed.nbytes, "records": warmed.records, "total": warmed.total})
        return
    print_line(f"{url}: {format_bytes(warmed.nbytes)} fetched")
    if warmed.records < warmed.total:
        print_line(
            f"  the cache is full: about {warmed.records / warmed.total:.0%} of the records are in it, and each epoch "
            "reads these from it; --cache-size and cache_size= set its limit"
        )


def _find_folder(given: str | None) -> Path:
    from penstock.stores.remote.cache import CacheFolder

    return CacheFolder(given, 0).path


def _describe_cached_store(each: CachedStore) -> str:
    used = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.used_s))
    amount = f"{format_bytes(each.nbytes)} of {format_bytes(each.store_nbytes)} ({each.share:.0%})"
    return f"{each.url or 'unknown'}  version {each.version}: {amount}, last used {used}"


def _parse_age(text: str) -> float:
    """Parse an age such as ``7d``, in seconds."""
    number, unit = text[:-1], text[-1:]
    try:
        seconds = float(number) * _SECONDS[unit]
    except (ValueError, KeyError):
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ArgumentError(f"--older-than must be a number with s, m, h or d, such as 7d, got {text!r:.50}")
    return seconds
