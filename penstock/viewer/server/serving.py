"""``ps.view``: starts the server in a thread, on a free port of this machine."""

from __future__ import annotations

import html
import os
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from penstock import stores
from penstock.errors import ArgumentError
from penstock.loader.statistics import LoaderStatistics
from penstock.registry import require
from penstock.stores.base import Store
from penstock.viewer.browse.collection import Collection
from penstock.viewer.live.attaching import attach_loader, find_store
from penstock.viewer.live.sources import LiveSources
from penstock.viewer.session import Session

__all__ = ["Viewer", "view"]


def view(
    store: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Store | LoaderStatistics | None = None,
    *,
    port: int = 0,
    attach: str | int | None = None,
) -> Viewer:
    """Show a store or a running loader in a browser, or as the result of a notebook's cell.

    Parameters
    ----------
    store : str, path, sequence of paths, Store, or DataLoader
        A path is opened, and closed with the viewer. A loader of penstock or :mod:`penstock.torch` is shown at work,
        from its next epoch on: its ``view`` is set. None: what the loaders of ``attach`` read.
    port : int
        To listen on; 0: a free one.
    attach : str or int, optional
        Loaders of other processes, made with ``view=True``: "all" of this user, the number of a process, or the path of
        a loader's file or of a folder of such files.

    Returns
    -------
    Viewer
        Runs until it is closed, or until the process ends.

    Raises
    ------
    OptionalPackageError
        If Starlette or uvicorn is absent: ``pip install penstock-data[view]``.
    StoreError
        If the store cannot be opened.
    ArgumentError
        If there is neither a store nor a loader, or ``attach`` names none.
    """
    for name in ("starlette", "uvicorn"):
        require(name, extra="view", purpose="to view a store")
    if isinstance(store, LoaderStatistics):
        store, attach = attach_loader(store)
    elif store is None and attach is None:
        raise ArgumentError("a store or a loader must be given, or attach=, got neither")
    owns = not isinstance(store, Store)
    if store is None and attach is not None:
        store = find_store(attach)
    opened = store if isinstance(store, Store) else stores.open(store)
    session = Session(Collection(opened, owns_store=owns))
    if attach is not None:
        session.parts["live"] = LiveSources(attach, session.collection)
    return Viewer(session, port=port)


class Viewer:
    """A running viewer.

    Attributes
    ----------
    url : str
        Its address, with the token.
    """

    def __init__(self, session: Session, *, port: int = 0) -> None:
        import uvicorn

        from penstock.viewer.server.app import make_app
        from penstock.viewer.server.guard import make_token

        token = make_token()
        self.session = session
        self._socket = socket.create_server(("127.0.0.1", port))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/{token}/"
        config = uvicorn.Config(
            make_app(session, token), log_level="error", access_log=False, ws="none", server_header=False,
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="penstock-view", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when the viewer is closed."""
        self._thread.join()

    def close(self) -> None:
        """Stop the server, and close what was opened for it."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({self.session.collection.name!r}, {self.url})"

    def _repr_html_(self) -> str:
        return f'<iframe src="{html.escape(self.url)}" title="penstock view" width="100%" height="720"></iframe>'
