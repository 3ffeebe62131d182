"""``ps.view``: starts the server in a thread, on a free port of this machine."""

from __future__ import annotations

import contextlib
import html
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from penstock import stores
from penstock.datasets.streams.dataset import StreamDataset
from penstock.errors import ArgumentError
from penstock.loader.statistics import LoaderStatistics
from penstock.registry import require
from penstock.sample import DatasetLike
from penstock.stores.base import Store
from penstock.stores.streams import ShardStream
from penstock.viewer.browse.annotations_beside import read_beside
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.predictions import Predictions
from penstock.viewer.compare.two_stores import TwoStores
from penstock.viewer.find.finder import finder_of
from penstock.viewer.find.language import QueryError
from penstock.viewer.live.sources import LiveSources
from penstock.viewer.live.sources import find_store as find_store_of_loaders
from penstock.viewer.model.dataset_store import find_store
from penstock.viewer.model.source import is_viewable, open_source
from penstock.viewer.session import Session

__all__ = ["Viewer", "view"]


def view(
    store: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Store | DatasetLike | None = None,
    *,
    annotations: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    format: str = "auto",  # noqa: A002  # as of `pack`
    compare: str | os.PathLike[str] | Store | None = None,
    predictions: str | os.PathLike[str] | None = None,
    port: int = 0,
    attach: str | int | None = None,
    filter: str = "",  # noqa: A002  # as the page calls it
) -> Viewer:
    """Show a store, what a loader makes of it, or a running loader: in a browser, or as the result of a cell.

    Parameters
    ----------
    store : str, path, sequence of paths, Store, loader, or dataset
        What :func:`penstock.open` opens; a path is closed with the viewer, and nothing is written to it, or beside it.
        Of a loader (penstock's or torch's) or a map-style dataset, the page "Model" shows what the model gets: each op,
        several draws, and batches. The loader is not iterated, and does not change; one that was made with
        ``view=True`` is also shown at work. None: what the loaders of ``attach`` read.
    annotations : str, path or mapping, optional
        Annotations of the images that are no fields of the store, as for :func:`penstock.annotations.read`: boxes,
        points and masks of VOC, COCO or YOLO files beside a folder. What is wrong in them is left out.
    format : str
        Their format, or "auto".
    compare : str, path or Store, optional
        Another store, or a later version of this one: records are compared by their keys.
    predictions : str or path, optional
        A file of predictions of a model: COCO's results (``.json``), or a table (``.csv``, ``.jsonl``, ``.parquet``)
        with the columns ``key``, ``label`` and ``score``, or ``key`` and a probability for each class.
    port : int
        To listen on; 0: a free one.
    attach : str or int, optional
        Loaders of other processes, made with ``view=True``: "all" of this user, the number of a process, or the path of
        a loader's file or of a folder of such files.
    filter : str
        With which the grid opens at :attr:`Viewer.page_url`, in the language of the page: ``"label = dog"``.

    Returns
    -------
    Viewer
        Runs until it is closed, or until the process ends.

    Raises
    ------
    OptionalPackageError
        If Starlette or uvicorn is absent: ``pip install penstock-data[view]``.
    ArgumentError
        If it is no store, such as a stream of shards; the port cannot be listened on; the predictions are wrong, or of
        other records; neither a store nor a loader is given, or ``attach`` names none; the filter cannot be read.
    StoreError
        If the store cannot be opened.
    AnnotationError
        If the annotations cannot be read.

    Notes
    -----
    The server listens on 127.0.0.1 only, and its address has a random token: programs of other users of this machine,
    and other pages of the browser, do not know it. On a machine without a display, forward the port:
    ``ssh -L PORT:127.0.0.1:PORT host``, and open the same address.

    A kind of store that needs options is opened by the caller. :func:`penstock.open` itself keeps the index of a tar,
    RecordIO or TFRecord file beside it. Records that are picked in the page are kept by key for the next viewer of the
    store, in the user's state folder (``~/.local/state/penstock/picks``).
    """
    for name in ("starlette", "uvicorn"):
        require(name, extra="view", purpose="to view a store")
    source = open_source(store) if store is not None and is_viewable(store) else None
    if isinstance(store, LoaderStatistics) and store.view:
        attach = os.getpid()
    given = store if source is None else find_store(source)
    if given is None and attach is None:
        raise ArgumentError("a store or a loader must be given, or attach=, got neither")
    with contextlib.ExitStack() as stack:  # closes what is opened here, if anything fails
        if isinstance(given, Store):
            opened = given
        else:
            opened = find_store_of_loaders(attach) if given is None and attach is not None else _open(given)
            stack.callback(opened.close)
        beside = None if annotations is None else read_beside(opened, annotations, format)
        collection = Collection(opened, owns_store=opened is not given, annotations=beside)
        session = Session(collection, parts={} if source is None else {"model": source})
        session.start = "live" if store is None else "grid" if source is None else "model"
        stack.callback(session.close)
        if attach is not None:
            session.parts["live"] = LiveSources(attach, collection)
        _add_compared(session, compare, predictions)
        session.filter = filter
        _check_filter(session)
        viewer = Viewer(session, port=port)
        stack.pop_all()
    return viewer


class Viewer:
    """A running viewer.

    Attributes
    ----------
    url : str
        Its address, with the token.
    page_url : str
        The same, with the filter that the page opens with, if one was given.
    """

    def __init__(self, session: Session, *, port: int = 0) -> None:
        import uvicorn

        from penstock.viewer.server.app import make_app
        from penstock.viewer.server.connections import LimitedProtocol

        token = secrets.token_urlsafe(24)
        self.session = session
        app = make_app(session, token)
        self._socket = _listen(port)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/{token}/"
        state = urlencode({"view": "grid", "q": session.filter}, errors="backslashreplace")
        self.page_url = f"{self.url}#{state}" if session.filter else self.url
        config = uvicorn.Config(  # faults are logged by the application
            app, http=LimitedProtocol, log_level="critical", access_log=False, ws="none", server_header=False
        )
        self._server = uvicorn.Server(config)
        self._ended = threading.Event()
        """Set by the thread: a ``join`` that Ctrl-C interrupts takes a thread that runs for one that has ended."""
        self._thread = threading.Thread(target=self._serve, name="penstock-view", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Return when the viewer is closed."""
        self._ended.wait()

    def close(self) -> None:
        """Stop the server, and close what was opened for it. Closing again does nothing."""
        self._server.should_exit = True
        self._ended.wait()
        self._thread.join()
        self._socket.close()
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.session.collection.name!r}, {self.url})"

    def _repr_html_(self) -> str:
        url = html.escape(self.page_url)
        return (
            f'<iframe src="{url}" title="penstock view" width="100%" height="720" style="border: 0"></iframe>'
            f'<div><a href="{url}" target="_blank" rel="noreferrer">Open in a tab</a></div>'
        )


def _open(given: object) -> Store:
    """The store that is given by its place, or that wraps an object; ArgumentError of a stream."""
    is_iterator = hasattr(given, "__iter__") and not hasattr(given, "__getitem__")
    if isinstance(given, ShardStream | StreamDataset) or is_iterator:
        raise ArgumentError(
            f"a viewer reads records in any order, and {type(given).__name__} only gives them one after another; view "
            "the store that it reads, or pack it first (penstock pack)"
        )
    return stores.open(given)


def _add_compared(
    session: Session, compare: str | os.PathLike[str] | Store | None, predictions: str | os.PathLike[str] | None
) -> None:
    """Open what is to be compared with the records of a session."""
    if predictions is not None:
        found = Predictions(session.collection, Path(predictions))
        session.parts["predictions"] = found
        session.layer_sources.append(found)
    if compare is not None:
        owns = not isinstance(compare, Store)
        other = compare if isinstance(compare, Store) else stores.open(compare)
        session.parts["compare"] = TwoStores(session.collection, Collection(other, owns_store=owns))


def _check_filter(session: Session) -> None:
    try:
        finder_of(session).parse(session.filter)
    except QueryError as error:
        place = f"the filter {session.filter!r:.300} is wrong at character {error.at + 1}"
        raise ArgumentError(f"{place}: {error.message}") from error


def _listen(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise ArgumentError(f"port must be in [0, 65535], got {port}")
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ArgumentError(f"port {port} cannot be listened on: {error.strerror or error}") from error
