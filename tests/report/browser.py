"""Drives a headless Chromium by its DevTools protocol over a pipe, with Python's standard library alone."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find():
    """The path of a Chromium; none where none is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser with one page. Collects the console's messages, errors of scripts, and the addresses of all requests."""

    def __init__(self, program, downloads=None):
        self.folder = tempfile.mkdtemp(prefix="trainyard-browser-")
        to_read, self.to = os.pipe()
        self.of, to_write = os.pipe()

        def before_exec():  # Chromium reads commands from 3 and answers to 4
            os.dup2(to_read, 100)
            os.dup2(to_write, 101)
            os.dup2(100, 3)
            os.dup2(101, 4)

        arguments = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                     "--force-device-scale-factor=1", "--remote-debugging-pipe", f"--user-data-dir={self.folder}", "about:blank"]
        self.process = subprocess.Popen(arguments, preexec_fn=before_exec, pass_fds=(3, 4), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "HOME": self.folder})
        os.close(to_read)
        os.close(to_write)
        self.next, self.buffer, self.events, self.problems, self.requests, self.events_seen = 0, b"", [], [], [], []
        self.session = None
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(each["targetId"] for each in target if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        if downloads:
            self.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self.to)
        self.process.kill()
        self.process.wait()
        os.close(self.of)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def read_message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            block = os.read(self.of, 1 << 16)
            if not block:
                raise ConnectionError("the browser has ended")
            self.buffer += block
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def note(self, message):
        method, values = message.get("method"), message.get("params", {})
        self.events_seen.append(method)
        if method == "Runtime.exceptionThrown":
            details = values["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and values["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(each.get("value", each.get("description"))) for each in values["args"]))
        elif method == "Log.entryAdded" and values["entry"]["level"] in ("error", "warning"):
            self.problems.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.problems.append("dialog: " + values["message"])

    def call(self, method, seconds=60, **values):
        self.next += 1
        message = {"id": self.next, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read_message(seconds)
            if answer.get("id") != self.next:
                self.note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def wait_for_event(self, method, seconds=60):
        while method not in self.events_seen:
            self.note(self.read_message(seconds))

    def run(self, code):
        """The value of an expression in the page; of a promise, what it is fulfilled with."""
        result = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "error in the page"))
        return result["result"].get("value")

    def open(self, path, width=1280, height=900, dark=False, ready="document.documentElement.dataset.ready === 'true'"):
        """Loads the file, and returns the seconds until the page says that it is ready and has painted."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.events_seen.clear()
        self.requests.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_for_event("Page.loadEventFired")
        self.wait_until(ready)
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - begin

    def wait_until(self, condition, seconds=30):
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(f"never true in the page: {condition}")
            time.sleep(0.02)

    def screenshot(self, path, whole=True):
        result = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        pathlib.Path(path).write_bytes(base64.b64decode(result["data"]))

    def print_to(self, path):
        result = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        pathlib.Path(path).write_bytes(base64.b64decode(result["data"]))

    def press(self, key, **more):
        text = {"Enter": "\r", " ": " "}.get(key, key if len(key) == 1 else "")
        code = KEYS.get(key, ord(key) if len(key) == 1 else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code, **more)

    def mouse(self, kind, x, y, button="none", clicks=0):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks,
                  buttons=1 if button == "left" and kind != "mouseReleased" else 0)

    def click(self, selector):
        x, y = self.middle_of(selector)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, "left", 1)
        self.mouse("mouseReleased", x, y, "left", 1)

    def middle_of(self, selector):
        box = self.run(f"""(() => {{ const node = document.querySelector({json.dumps(selector)});
            node.scrollIntoView({{block: 'center'}}); const box = node.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2]; }})()""")
        return box
