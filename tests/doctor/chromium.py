"""A headless Chromium, driven through pipes: the DevTools protocol without a socket, so no port and no package.

Commands are JSON that ends in a zero byte; Chromium reads them from descriptor 3 and writes answers to descriptor 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

PROGRAMS: Final = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
_PATIENCE_S: Final = 120.0
_START: Final = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    """The path of an installed Chromium."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Chromium:
    """A browser with one page.

    Parameters
    ----------
    program : str
        Its path.
    profile : Path
        An empty folder for its files.
    """

    def __init__(self, program: str, profile: Path) -> None:
        reads_ours, self._commands = os.pipe()
        self._answers, writes_theirs = os.pipe()
        arguments = [
            "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-extensions", "--disable-background-networking", "--no-zygote",
            "--disable-component-update", "--disable-sync", "--hide-scrollbars", f"--user-data-dir={profile}",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(reads_ours), str(writes_theirs), program, *arguments, "about:blank"],
            pass_fds=(reads_ours, writes_theirs), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(reads_ours)
        os.close(writes_theirs)
        self._buffer, self._last, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        try:
            target = self.command("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.command(f"{domain}.enable")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        os.close(self._commands)  # it ends itself when nobody can command it any more
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Run a command of the protocol, and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, page: Path, width: int = 1200, height: int = 900, *, dark: bool = False) -> None:
        """Open a file at a size of the window, in CSS pixels, and wait until it is loaded."""
        self.events.clear()
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the middle of an element, with the mouse."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.scrollIntoView({{block: 'center', inline: 'center'}})")
        box = self.evaluate(f"{found}.getBoundingClientRect().toJSON()")
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def press(self, key: str) -> None:
        """Press a key, as its name in JavaScript."""
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.command(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key],
                **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and requests for anything but the page and what is in it."""
        found = []
        for event in self.events:
            method, parameters = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"])[:500])
            if method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
                found.append(parameters["entry"]["text"])
            if method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning", "assert"}:
                found.append(json.dumps(parameters["args"])[:500])
            if method == "Network.requestWillBeSent":
                url = parameters["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    found.append(url)
        return found

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page."""
        shot = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _write(self, message: bytes) -> None:
        while message:
            message = message[os.write(self._commands, message) :]

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise ConnectionError(f"Chromium ended with {self._process.wait()}")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
