"""A small server of S3's protocol for fast tests: objects are files below ``root/bucket``; no signature is compared."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.servers.web import WebServer, _Handler

__all__ = ["ObjectServer"]


class ObjectServer(WebServer):
    """Serves buckets, and writes to them.

    Attributes
    ----------
    write_faults : list of str
        The faults of the next requests that write, one each: a status (``"503"``), or ``"reset"``; ``""`` is none.
    written : list of str
        The keys of the objects that were written, in order.
    damages : int
        Number of objects that are written with a wrong byte from now on.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.RequestHandlerClass = _ObjectHandler
        self.write_faults: list[str] = []
        self.written: list[str] = []
        self.damages = 0
        self.on_write: Callable[[str], None] | None = None
        """Called with the key of each object that was written, before the answer."""
        self.uploads: dict[str, dict[int, bytes]] = {}

    @property
    def options(self) -> dict[str, object]:
        """The ``storage_options`` of its clients."""
        keys = {"access_key_id": "a-key", "secret_access_key": "a-secret"}
        return {"endpoint": self.url, "region": "us-east-1", **keys}

    def store(self, key: str, content: bytes) -> None:
        """Write an object in one step."""
        if self.damages and content:
            self.damages -= 1
            content = bytes([content[0] ^ 1]) + content[1:]
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.root / f".{uuid.uuid4().hex}"
        partial.write_bytes(content)
        partial.replace(path)
        self.written.append(key)
        if self.on_write is not None:
            self.on_write(key)


class _ObjectHandler(_Handler, BaseHTTPRequestHandler):
    server: ObjectServer

    def do_PUT(self) -> None:
        query, content = self._split(), self._read_body()
        if self._fails():
            return
        if "uploadId" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = content
        else:
            self.server.store(self._key, content)
        self._send(200, b"", {"ETag": f'"{uuid.uuid4().hex}"'})

    def do_POST(self) -> None:
        query, content = self._split(), self._read_body()
        if self._fails():
            return
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.server.uploads[upload] = {}
            names = f"<Bucket>b</Bucket><Key>{escape(self._key)}</Key>"
            kind = "InitiateMultipartUploadResult"
            text = f"<{kind}>{names}<UploadId>{upload}</UploadId></{kind}>"
        elif "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", content.decode())
            for key in keys:
                (self.server.root / self._key / key).unlink(missing_ok=True)
            text = f"<DeleteResult>{''.join(f'<Deleted><Key>{key}</Key></Deleted>' for key in keys)}</DeleteResult>"
        else:
            parts = self.server.uploads.pop(query["uploadId"])
            self.server.store(self._key, b"".join(parts[number] for number in sorted(parts)))
            text = f'<CompleteMultipartUploadResult><ETag>"{uuid.uuid4().hex}"</ETag></CompleteMultipartUploadResult>'
        self._send(200, text.encode(), {"Content-Type": "application/xml"})

    def do_DELETE(self) -> None:
        query = self._split()
        if self._fails():
            return
        if "uploadId" in query:
            self.server.uploads.pop(query["uploadId"], None)
        else:
            (self.server.root / self._key).unlink(missing_ok=True)
        self._send(204, b"", {})

    def _split(self) -> dict[str, str]:
        """The query; the path is left without it."""
        parts = urlsplit(self.path)
        self.path = parts.path
        self._key = unquote(parts.path).strip("/")
        return {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}

    def _read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _fails(self) -> bool:
        self.server.asked.append((self.command, self.path, ""))
        fault = self.server.write_faults.pop(0) if self.server.write_faults else ""
        bucket = self.server.root / self._key.partition("/")[0]
        if fault == "reset":
            self.connection.shutdown(2)
            self.close_connection = True
        elif fault:
            code = {"403": "AccessDenied"}.get(fault, "SlowDown")
            self._send(int(fault), f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode(), {})
        elif not bucket.is_dir():
            self._send(404, b"<Error><Code>NoSuchBucket</Code><Message>no</Message></Error>", {})
        else:
            return False
        return True
