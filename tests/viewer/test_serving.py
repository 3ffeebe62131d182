"""``ps.view`` and ``penstock view``: what is started, what is left open, what is said."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.cli import viewer_command
from penstock.errors import AnnotationError, ArgumentError, OptionalPackageError, StoreNotFoundError
from tests.pack.images import make_photos


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three pictures."""
    return make_photos(tmp_path / "photos", 3)


def count_files() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_closed_viewer_leaves_nothing(photos: Path) -> None:
    """No thread, no open file, no port, also after a connection that was kept; closing again does nothing."""
    ps.view(photos).close()  # imports, and what is opened once
    before = {thread.name for thread in threading.enumerate()}, count_files()

    viewer = ps.view(photos)
    port = int(viewer.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as kept:
        path = viewer.url.split("/", 3)[3]
        kept.sendall(f"GET /{path}api/thumb/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert kept.recv(1 << 16).startswith(b"HTTP/1.1 200")
        viewer.close()
    viewer.close()

    assert ({thread.name for thread in threading.enumerate()}, count_files()) == before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=60)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (["nothing.lmdb"], {}, StoreNotFoundError, "there is no store"),
        (["photos"], {"port": 70000}, ArgumentError, r"port must be in \[0, 65535\], got 70000"),
        (["photos"], {"annotations": "nothing.json"}, AnnotationError, "there is nothing at"),
        ([3], {}, ArgumentError, "a store must be a path or a URL, got int"),
        ([iter(())], {}, ArgumentError, "pack it first"),
    ],
)
def test_what_cannot_be_viewed_is_said(
    photos: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, error: Any, message: str
) -> None:
    """One sentence; nothing is left open."""
    monkeypatch.chdir(photos.parent)
    before = threading.active_count(), count_files()

    with pytest.raises(error, match=message):
        ps.view(*arguments, **options)

    assert (threading.active_count(), count_files()) == before


def test_a_port_that_is_taken_is_said(photos: Path) -> None:
    """And a store of the caller stays open."""
    with socket.create_server(("127.0.0.1", 0)) as taken, ps.open(photos) as store:
        port = taken.getsockname()[1]
        with pytest.raises(ArgumentError, match=f"port {port} cannot be listened on"):
            ps.view(store, port=port)
        assert len(store.read([0])) == 1


def test_a_stream_of_shards_cannot_be_viewed(tmp_path: Path, photos: Path) -> None:
    """It gives records one after another; it says what to view instead. The shards themselves are viewed."""
    ps.pack(photos, tmp_path / "a.tar")
    stream = ps.StreamDataset(str(tmp_path / "a.tar"))

    with pytest.raises(ArgumentError, match="gives them one after another; view the store that it reads"):
        ps.view(stream)  # type: ignore[arg-type]  # what is tested

    with ps.view(tmp_path / "a.tar") as viewer:
        assert viewer.session.collection.total == 3


def test_the_extra_is_named_where_it_is_absent(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence with the command that installs it."""
    monkeypatch.setitem(sys.modules, "starlette", None)

    with pytest.raises(OptionalPackageError, match=r"penstock-data\[view\]"):
        ps.view(photos)


def test_a_notebook_shows_a_frame(photos: Path) -> None:
    """And a link, for where a frame cannot reach the server."""
    with ps.view(photos) as viewer:
        html = viewer._repr_html_()
        assert repr(viewer) == f"Viewer('photos', {viewer.url})"

    assert f'<iframe src="{viewer.url}"' in html
    assert f'<a href="{viewer.url}"' in html


def test_the_command_says_its_address_and_ends_by_an_interrupt(photos: Path) -> None:
    """Two lines; then Ctrl-C ends it without a traceback."""
    command = [sys.executable, "-m", "penstock", "view", str(photos), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address, what = child.stdout.readline().strip(), child.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}api/session", timeout=60) as answer:
            assert answer.status == 200
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=60)

    assert what == f"files://{photos}: 3 records (image, label); Ctrl-C ends it"
    assert child.returncode == 0
    assert said == ""


@pytest.mark.parametrize(
    ("environment", "name", "opens"),
    [
        ({}, "firefox", False),
        ({"DISPLAY": ":0"}, "firefox", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "xdg-open", True),
        ({"DISPLAY": ":0"}, "/usr/bin/lynx", False),
        ({"BROWSER": "/some/helper.sh"}, "/some/helper.sh", True),
    ],
)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is a display")
def test_no_browser_takes_the_terminal(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], name: str, opens: bool
) -> None:
    """A browser is opened where it has a window of its own."""
    for each in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(each, raising=False)
    for each, value in environment.items():
        monkeypatch.setenv(each, value)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser(name))

    assert viewer_command._has_display() is opens


def test_several_threads_ask_at_once(photos: Path, ask: Callable[..., Any]) -> None:
    """Thumbnails of all records, of several sizes, by eight connections: each is right."""
    asker = ask(photos)
    wanted = [f"api/thumb/{index}?side={side}" for index in range(3) for side in (32, 64, 128, 256)]
    alone = {path: asker.request(path)[2] for path in wanted}
    other = ask(photos)
    found: dict[str, bytes] = {}

    threads = [
        threading.Thread(target=lambda path=path: found.update({path: other.request(path)[2]})) for path in wanted
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert found == alone
