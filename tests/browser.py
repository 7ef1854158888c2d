"""A headless Chromium, spoken to through a pipe: the DevTools protocol without any further dependency."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Browser", "find_chromium"]

_TIMEOUT = 30.0


def find_chromium() -> str | None:
    """The path of an installed Chromium or Chrome; the variable `CHROMIUM` may name one."""
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


class Browser:
    """One page in one browser, and all that went wrong in it."""

    def __init__(self, executable: str, profile: Path) -> None:
        read_commands, self._write = os.pipe()
        self._read, write_answers = os.pipe()
        words = [
            executable,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        # The protocol wants file descriptors 3 and 4.
        shell = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, "bash", *words],
            pass_fds=(read_commands, write_answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._last_id = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(1400, 900)

    def close(self) -> None:
        """End the browser."""
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        self._process.kill()
        self._process.wait()

    def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol, and its answer."""
        self._last_id += 1
        message: dict[str, Any] = {"id": self._last_id, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while True:
            answer = self._receive()
            if answer.get("id") == self._last_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")  # noqa: EM102
                return answer["result"]

    def _receive(self) -> dict[str, Any]:
        """The next message; events are looked at for errors."""
        end = time.monotonic() + _TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._read, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = parameters["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if parameters["type"] in {"error", "warning", "assert"}:
                self.errors.append(str(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in {"error", "warning"}:
                self.errors.append(parameters["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(parameters["request"]["url"][:200])
        return message

    def open(self, path: Path) -> float:
        """Open a report; gives the seconds until it is ready."""
        start = time.monotonic()
        self.call("Page.navigate", url=path.absolute().as_uri())
        self.wait("document.documentElement?.dataset.ready === 'true'")
        self.settle()
        return time.monotonic() - start

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")  # noqa: EM102
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {condition}; errors: {self.errors}")  # noqa: EM102
            time.sleep(0.02)

    def settle(self) -> None:
        """Wait until what was asked for has been drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def key(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        common = {"key": key, "modifiers": 8 * shift, "windowsVirtualKeyCode": codes.get(key, 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def type(self, text: str) -> None:
        """Type into the element that has the focus."""
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """Click on the middle of an element."""
        self.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'nearest'}})")
        box = self.run(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, *box)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """One event of the mouse."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **({"button": "left", "clickCount": 1} | more))

    def size(self, width: int, height: int) -> None:
        """The size of the page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def colours(self, scheme: str) -> None:
        """What the system asks for: `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Save what is seen as a PNG."""
        self.settle()
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
