"""``ps.view`` and ``penstock view``: what is started, what is left open, what is said."""

from __future__ import annotations

import contextlib
import html
import itertools
import os
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
from urllib.parse import parse_qs, urlsplit

import pytest

import penstock as ps
from penstock.cli.browser import has_display
from penstock.errors import AnnotationError, ArgumentError, OptionalPackageError, StoreNotFoundError
from penstock.viewer.find.finder import finder_of
from penstock.viewer.server import connections
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
    threads, files = {thread.name for thread in threading.enumerate()}, count_files()

    viewer = ps.view(photos)
    port = int(viewer.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as kept:
        path = viewer.url.split("/", 3)[3]
        kept.sendall(f"GET /{path}api/thumb/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert kept.recv(1 << 16).startswith(b"HTTP/1.1 200")
        viewer.close()
    viewer.close()

    assert {thread.name for thread in threading.enumerate()} <= threads
    assert count_files() <= files
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=60)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (["nothing.lmdb"], {}, StoreNotFoundError, "there is no store"),
        (["photos"], {"port": 70000}, ArgumentError, r"port must be in \[0, 65535\], got 70000"),
        (["photos"], {"annotations": "nothing.json"}, AnnotationError, "there is nothing at"),
        (["photos"], {"filter": "label = "}, ArgumentError, "'label = ' is wrong at character 9: a value after ="),
        (["photos"], {"filter": "nbytes > 1 and lable = cats"}, ArgumentError, "character 16: no field .* mean label"),
        (
            ["photos"],
            {"filter": "label = cuts"},
            ArgumentError,
            "character 9: no class is named 'cuts'; did you mean c",
        ),
        (["photos"], {"filter": "(" * 60 + "key"}, ArgumentError, "wrong at character 51: a filter must be nested"),
        (["photos"], {"filter": "key " * 1001}, ArgumentError, "wrong at character 4001: .* at most 4000 characters"),
        ([3], {}, ArgumentError, "a store must be a path or a URL, got int"),
        ([iter(())], {}, ArgumentError, "pack it first"),
    ],
)
def test_what_cannot_be_viewed_is_said(
    photos: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, options: Any, error: Any, message: str
) -> None:
    """One sentence; nothing is left open."""
    monkeypatch.chdir(photos.parent)
    threads, files = threading.active_count(), count_files()

    with pytest.raises(error, match=message):
        ps.view(*arguments, **options)

    assert threading.active_count() <= threads
    assert count_files() <= files


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
        ps.view(stream)

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
        shown = viewer._repr_html_()
        assert repr(viewer) == f"Viewer('photos', {viewer.url})"

    assert f'<iframe src="{viewer.url}"' in shown
    assert f'<a href="{viewer.url}"' in shown


@pytest.mark.parametrize("text", ['label = cats and key ~ "é&#+%*"', "format = JPEG"])
def test_a_filter_is_in_the_address_of_the_page(photos: Path, text: str) -> None:
    """Of the grid, also where another page is the first one; nothing is measured before the page asks."""
    with ps.view(photos, filter=text) as viewer, ps.view(photos) as other:
        base, _, state = viewer.page_url.partition("#")
        assert base == viewer.url
        assert parse_qs(state) == {"view": ["grid"], "q": [text]}
        assert f'<iframe src="{html.escape(viewer.page_url)}"' in viewer._repr_html_()
        assert finder_of(viewer.session).scan.generation == 0
        assert other.page_url == other.url


def test_a_filter_that_is_no_unicode_is_shown_escaped(photos: Path) -> None:
    """As bytes of the command line may be that are not of its encoding."""
    with ps.view(photos, filter="key = \udcff") as viewer:
        assert viewer.page_url.endswith("&q=key+%3D+%5Cudcff")


def test_the_command_refuses_a_wrong_filter(photos: Path) -> None:
    """Before it listens: it ends with 2, and prints no address."""
    command = [sys.executable, "-m", "penstock", "view", str(photos), "--no-browser", "--filter", "label = cats and ("]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "is wrong at character 19:" in ended.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere there is a display")
@pytest.mark.parametrize(
    ("environment", "forwards"),
    [
        ({"SSH_CONNECTION": "198.51.100.1 50000 203.0.113.7 22"}, "ssh -L {0}:127.0.0.1:{0} ada@203.0.113.7"),
        ({"SSH_CONNECTION": "::1 50000 2001:db8::7 2222"}, "ssh -L {0}:127.0.0.1:{0} -p 2222 ada@2001:db8::7"),
        ({"SSH_CONNECTION": "UNKNOWN"}, f"ssh -L {{0}}:127.0.0.1:{{0}} ada@{socket.gethostname()}"),
        ({"SSH_CONNECTION": "198.51.100.1 50000 203.0.113.7 22", "DISPLAY": "localhost:10.0"}, ""),
        ({}, ""),
    ],
)
def test_the_command_that_forwards_the_port(photos: Path, environment: dict[str, str], forwards: str) -> None:
    """It is printed on a line of its own under SSH without a display, and nowhere else."""
    hidden = {"SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    given = {name: value for name, value in os.environ.items() if name not in hidden} | {"LOGNAME": "ada"}
    command = [sys.executable, "-m", "penstock", "view", str(photos), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=given | environment) as child:
        assert child.stdout is not None
        said = list(itertools.takewhile(lambda line: "Ctrl-C ends it" not in line, child.stdout))
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)

    port = urlsplit(said[0]).port
    assert said[1:] == [f"{forwards.format(port)}\n"][: bool(forwards)]


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


_INTERRUPTED = """
import signal, sys, threading
import penstock as ps
from penstock.viewer.server.serving import Viewer

store = ps.open(sys.argv[1])
read, begun, ended = type(store).read, threading.Event(), threading.Event()

def read_slowly(self, indices):
    begun.set()
    ended.wait()
    return read(self, indices)

type(store).read = read_slowly
viewer = ps.view(store)
print(viewer.url, flush=True)
begun.wait()
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    viewer.wait()
except KeyboardInterrupt:
    threading.Timer(float(sys.argv[2]), ended.set).start()
    viewer.close()
    print(ended.is_set(), viewer._ended.is_set(), flush=True)
"""


@pytest.mark.parametrize("longer_s", ["0.3", "2"])
def test_an_interrupt_waits_for_the_answers(photos: Path, longer_s: str) -> None:
    """The store is closed when no request reads of it any more, also one that takes longer than clients are waited for.

    A ``join`` that is interrupted takes the thread for ended.
    """
    command = [sys.executable, "-c", _INTERRUPTED, str(photos), longer_s]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        address = urlsplit(child.stdout.readline().strip())
        with socket.create_connection(("127.0.0.1", address.port or 0), timeout=60) as asked:
            asked.sendall(f"GET {address.path}api/record/0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            said, wrong = child.communicate(timeout=60)

    assert (said, wrong) == ("True True\n", "")


def connect_silently(port: int, count: int, said: bytes) -> list[socket.socket]:
    """Connections that send ``said``, and no more."""
    made = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(count)]
    for each in made:
        each.sendall(said)
    return made


def read_to_end(connection: socket.socket) -> None:
    """Read until the other side closes; it times out where it does not."""
    with connection, contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: 127", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_connections_without_a_request_are_closed(
    photos: Path, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    """After a time: half a request, nothing, and what follows a refusal."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.3)
    asker = ask(photos)
    held = connect_silently(asker.address.port, 3, said)
    for each in held:
        read_to_end(each)

    assert asker.request("api/session")[0] == 200


def test_more_connections_than_the_limit_keep_no_page_from_its_answer(
    photos: Path, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest that wait are closed; the others, and what asks, are answered."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "REQUEST_S", 3600.0)
    asker = ask(photos)
    held = connect_silently(asker.address.port, 20, b"GET /")

    for each in held[:12]:
        read_to_end(each)
    assert asker.request("api/session")[0] == 200
    held[-1].sendall(b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert held[-1].recv(1 << 16).startswith(b"HTTP/1.1 404")
    for each in held[12:]:
        each.close()


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

    assert has_display() is opens


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
