"""A headless Chromium, driven through its DevTools pipe: no driver, no library.

Messages are JSON, ended by a zero byte, over two pipes that Chromium finds as files 3 and 4.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
EXPECTED = "GRD_OFFLINE_BROWSER"
"""Where this environment variable is set, as `.ci/run` does, tests fail without a browser."""
SECONDS = 60


def find_chromium():
    """Its path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def is_missing():
    """Whether there is no browser, and none is expected."""
    return find_chromium() is None and not os.environ.get(EXPECTED)


class Browser:
    """One page; use it in a `with` statement."""

    def __init__(self):
        program = find_chromium()
        assert program, f"no browser on the PATH, and {EXPECTED} says that there is one"
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.write_end = os.pipe()
        self.read_end, theirs_out = os.pipe()
        command = [
            *(program, "--headless=new", "--no-sandbox", "--disable-gpu"),
            *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"),
            *(
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--user-data-dir={self.profile.name}",
            ),
            "about:blank",
        ]
        # Above 4, so that neither is overwritten when they are put where Chromium expects them.
        pipes = [fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 10) for pipe in (theirs_in, theirs_out)]

        def put():
            os.dup2(pipes[0], 3)
            os.dup2(pipes[1], 4)

        self.process = subprocess.Popen(
            command,
            close_fds=False,
            preexec_fn=put,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for pipe in (theirs_in, theirs_out, *pipes):
            os.close(pipe)
        self.number, self.buffer, self.events, self.session = 0, b"", [], None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def call(self, method, **parameters):
        """Call a method of the protocol and give its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive(SECONDS)
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
            assert ready, "Chromium did not answer"
            part = os.read(self.read_end, 1 << 20)
            assert part, "Chromium has gone"
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, file, *, width=1280, height=900, dark=False, reduced_motion=True):
        """Open a file and wait until the page says that it is ready."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if reduced_motion else ""},
        ]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        self.call("Page.navigate", url=Path(file).resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready !== undefined")

    def run(self, expression):
        """The value of some JavaScript."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition, seconds=20):
        """Until some JavaScript is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.03)

    def press(self, key, times=1):
        """A key, as a person presses it."""
        codes = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40}  # fmt: skip
        for _ in range(times):
            text = {"text": "\r"} if key == "Enter" else {}
            for kind in ("keyDown", "keyUp"):
                extra = text if kind == "keyDown" else {}
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                          windowsVirtualKeyCode=codes[key], **extra)  # fmt: skip

    def move_mouse(self, x, y):
        """To a place in the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def list_requests(self):
        """Addresses that were asked for, but for the page's own."""
        self.run("0")
        asked = [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]

    def list_errors(self):
        """What the console and the page complained of."""
        self.run("0")
        found = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"])
            if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in (
                "error",
                "warning",
            ):
                found.append(event["params"]["args"])
            if event["method"] == "Log.entryAdded":
                found.append(event["params"]["entry"]["text"])
        return found

    def take_picture(self, file, *, whole=False):
        """Of the window, or of the whole page."""
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"clip": {**size, "scale": 1}, "captureBeyondViewport": True}
        shot = self.call("Page.captureScreenshot", format="png", **more)
        Path(file).write_bytes(base64.b64decode(shot["data"]))
