"""A real headless Chromium, driven by its DevTools protocol over two pipes, with the standard library alone."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4, whatever ours are called.
_LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass
class Visit:
    """A page that was opened.

    Attributes:
        errors: what the console, the page's scripts or the browser complained of.
        requests: every address asked for, but those that carry their own data.
    """

    browser: Browser
    session: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.browser.call(
            "Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True}, self.session
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        answer = self.browser.call("Page.captureScreenshot", {"captureBeyondViewport": True}, self.session)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.browser.call("Page.printToPDF", {"printBackground": False}, self.session)["data"])

    def hear(self, event: dict[str, Any]) -> None:
        """Note what an event says."""
        name, about = event["method"], event["params"]
        if name == "Network.requestWillBeSent" and not about["request"]["url"].startswith("data:"):
            self.requests.append(about["request"]["url"])
        elif name == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif name == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert", "warning"):
            self.errors.append(str(about["args"]))
        elif name == "Runtime.exceptionThrown":
            self.errors.append(str(about["exceptionDetails"]))


class Browser:
    """Chromium with a new, empty profile; use it in a `with`."""

    def __init__(self, timeout: float = 60.0) -> None:
        self._timeout, self._last, self._rest = timeout, 0, b""
        self._visits: dict[str, Visit] = {}
        self._loaded: set[str] = set()

    def __enter__(self) -> Browser:
        assert PROGRAM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        arguments = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), PROGRAM, *_FLAGS]
        self._process = subprocess.Popen(
            [*arguments, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._out)
        os.close(self._in)
        self._profile.cleanup()

    def visit(self, path: Path, width: int = 1280, dark: bool = False) -> Visit:
        """Open a file in a new tab, as wide and in the colours wanted, and wait until it has loaded."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable", session=session)
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", size, session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]}, session)
        visit = self._visits[session] = Visit(self, session)
        self._loaded.discard(session)
        self.call("Page.navigate", {"url": path.absolute().as_uri()}, session)
        while session not in self._loaded:
            self._hear(self._next(time.monotonic() + self._timeout))
        visit.evaluate("new Promise(done => setTimeout(done, 50))")
        return visit

    def call(self, method: str, parameters: dict[str, Any] | None = None, session: str | None = None) -> dict[str, Any]:
        """Ask, and wait for the answer; what happens in between is noted."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters or {}}
        os.write(self._out, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        end = time.monotonic() + self._timeout
        while True:
            answer = self._next(end)
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._hear(answer)

    def _hear(self, message: dict[str, Any]) -> None:
        session = message.get("sessionId", "")
        if session in self._visits:
            if message["method"] == "Page.loadEventFired":
                self._loaded.add(session)
            self._visits[session].hear(message)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            content = os.read(self._in, 1 << 16)
            if not content:
                raise OSError(f"Chromium ended with {self._process.wait()}")
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)
