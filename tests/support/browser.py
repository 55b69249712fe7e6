"""Drives Chromium through its debugging pipe: null-terminated JSON on file descriptors 3 and 4. Needs no package.

A page's errors are collected as they come: what its console says at the levels error and warning, and exceptions.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 60


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Console errors and warnings, exceptions, and requests to anywhere but the file itself."""
        self.requests: list[str] = []

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + WAIT_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {WAIT_S} s"
            part = os.read(self._receive, 1 << 20)
            assert part, "the browser ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, values = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.problems.append(str(details.get("exception", {}).get("description", details["text"])))
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(each.get("value", each.get("description"))) for each in values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{values['entry']['text']} ({values['entry'].get('url', '')[:80]})")
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def open(self, path: Path) -> float:
        """Loads a file; returns the seconds from the start of loading to the page's own sign that it is ready."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + WAIT_S
        while not self.run("document.documentElement?.dataset.ready === 'true'"):
            assert time.monotonic() < deadline and not self.problems, self.problems or "the page never got ready"
            time.sleep(0.02)
        # Two frames: what was drawn is on the screen.
        script = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() / 1000))))"
        seconds: float = self.run(script)
        return seconds

    def run(self, script: str) -> Any:
        """The value of an expression, promises awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def resize(self, width: int, height: int, *, scale: float = 1.0, mobile: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=mobile
        )

    def prefer(self, theme: str) -> None:
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def open_browser(executable: str) -> Iterator[Page]:
    """A headless browser with a profile of its own, and a page in it."""
    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            "bash",
            "-c",
            f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}',
            executable,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        process = subprocess.Popen(
            command,
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        try:
            page = Page(ours_out, ours_in)
            page.attach()
            yield page
        finally:
            os.close(ours_out)
            os.close(ours_in)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
