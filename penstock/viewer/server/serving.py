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
from penstock.registry import require
from penstock.stores.base import Store
from penstock.viewer.browse.collection import Collection
from penstock.viewer.compare.sets import add_to_session
from penstock.viewer.session import Session

__all__ = ["Viewer", "view"]


def view(
    store: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Store,
    *,
    compare: str | os.PathLike[str] | Store | None = None,
    predictions: str | os.PathLike[str] | None = None,
    port: int = 0,
) -> Viewer:
    """Show a store in a browser, or as the result of a notebook's cell.

    Parameters
    ----------
    store : str, path, sequence of paths, or Store
        A path is opened, and closed with the viewer.
    compare : str, path or Store, optional
        Another store, or a later version of this one: records are compared by their keys.
    predictions : str or path, optional
        A file of predictions of a model: COCO's results (``.json``), or a table (``.csv``, ``.jsonl``, ``.parquet``)
        with the columns ``key``, ``label`` and ``score``, or ``key`` and a probability for each class.
    port : int
        To listen on; 0: a free one.

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
        If the file of predictions is wrong, or has none for the records of the store.
    """
    for name in ("starlette", "uvicorn"):
        require(name, extra="view", purpose="to view a store")
    owns = not isinstance(store, Store)
    opened = store if isinstance(store, Store) else stores.open(store)
    session = Session(Collection(opened, owns_store=owns))
    try:
        add_to_session(session, compare, predictions)
        return Viewer(session, port=port)
    except BaseException:
        session.close()
        raise


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
