"""A headless Chromium, driven over its DevTools protocol with nothing but Python's standard library.

Browser starts the program; Page is one tab: it evaluates, waits, types, looks at the accessibility tree, and remembers what the
page asked for, what it said on its console, and what it threw.
"""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import time
import urllib.parse

NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"]
# The browser makes no network requests of its own, and does not depend on the machine's display or memory.
OPTIONS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--metrics-recording-only", "--no-default-browser-check", "--password-store=basic",
    "--remote-debugging-port=0", "--remote-allow-origins=*",
]
ANSWER_SECONDS = 30


class WebSocket:
    """A client of RFC 6455: text in whole messages, no extensions."""

    def __init__(self, url):
        place = urllib.parse.urlparse(url)
        self.socket = socket.create_connection((place.hostname, place.port), ANSWER_SECONDS)
        key = base64.b64encode(os.urandom(16)).decode()
        head = (
            f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        self.rest = b""
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.socket.recv(4096)
        answer, self.rest = self.rest.split(b"\r\n\r\n", 1)
        if b" 101 " not in answer.split(b"\r\n", 1)[0]:
            raise ConnectionError(answer.decode(errors="replace"))

    def send(self, text):
        self._frame(1, text.encode())

    def _frame(self, opcode, payload):
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, length)
        # A mask of zeros is valid.
        self.socket.sendall(head + bytes(4) + payload)

    def receive(self, seconds):
        """The next message; None after the timeout."""
        message = b""
        while True:
            # Once a frame has started, the rest of it is awaited.
            frame = self._next_frame(seconds if not message else ANSWER_SECONDS)
            if frame is None:
                return None
            first, payload = frame
            opcode = first & 0x0F
            if opcode == 8:
                raise ConnectionError("the browser ended the connection")
            if opcode == 9:
                self._frame(10, payload)
            if opcode in (0, 1, 2):
                message += payload
                if first & 0x80:
                    return message.decode()

    def _next_frame(self, seconds):
        if not self.rest:
            self.socket.settimeout(seconds)
            try:
                self.rest = self.socket.recv(65536)
            except (TimeoutError, BlockingIOError):
                return None
        first, length = struct.unpack("!BB", self._take(2))
        if length == 126:
            length = struct.unpack("!H", self._take(2))[0]
        elif length == 127:
            length = struct.unpack("!Q", self._take(8))[0]
        return first, self._take(length)

    def _take(self, length):
        self.socket.settimeout(ANSWER_SECONDS)
        parts = [self.rest]
        have = len(self.rest)
        while have < length:
            part = self.socket.recv(max(65536, length - have))
            if not part:
                raise ConnectionError("the browser is gone")
            parts.append(part)
            have += len(part)
        whole = b"".join(parts)
        self.rest = whole[length:]
        return whole[:length]


class Browser:
    """The program, with a profile of its own."""

    def __init__(self, profile, *options):
        program = next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise FileNotFoundError("there is no Chromium here")
        command = [program, *OPTIONS, f"--user-data-dir={profile}", *options, "about:blank"]
        with open(f"{profile}.log", "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        port_file = os.path.join(profile, "DevToolsActivePort")
        deadline = time.monotonic() + 60
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise ChildProcessError(f"{program} does not start: see {profile}.log")
            time.sleep(0.1)
        with open(port_file, encoding="ascii") as file:
            port, path = file.read().split()
        self.socket = WebSocket(f"ws://127.0.0.1:{port}{path}")
        self.asked = 0
        self.answers = {}
        self.pages = {}

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def call(self, method, session=None, **parameters):
        """Sends a command and returns the browser's response."""
        self.asked += 1
        number = self.asked
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self.socket.send(json.dumps(message))
        deadline = time.monotonic() + ANSWER_SECONDS
        while number not in self.answers:
            if time.monotonic() > deadline:
                raise TimeoutError(method)
            self.listen(1)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def listen(self, seconds):
        """Handles one message if one arrives within this time."""
        text = self.socket.receive(seconds)
        if text is None:
            return
        message = json.loads(text)
        if "id" in message:
            self.answers[message["id"]] = message
        elif message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].event(message["method"], message["params"])

    def page(self, width=1280, height=900):
        """An empty tab, without state of other tabs."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, width, height, context)


class Page:
    """One tab."""

    def __init__(self, browser, session, width, height, context):
        self.browser = browser
        self.context = context
        self.session = session
        self.requests = []
        self.complaints = []
        # Responses in place of the origin's: path to JSON.
        self.replies = {}
        self.pending = []
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")
        self.size(width, height)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def event(self, method, told):
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(part.get("value", part.get("description"))) for part in told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif method == "Fetch.requestPaused":
            self.pending.append(told)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def size(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def media(self, **features):
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def reply(self, replies):
        """Serves these paths in place of the origin."""
        self.replies = replies
        self.call("Fetch.enable", patterns=[{"urlPattern": f"*{path}"} for path in replies])

    def tend(self):
        """Responds to pending requests."""
        while self.pending:
            told = self.pending.pop(0)
            path = urllib.parse.urlparse(told["request"]["url"]).path
            body = base64.b64encode(json.dumps(self.replies[path]).encode()).decode()
            headers = [{"name": "content-type", "value": "application/json"}]
            self.call("Fetch.fulfillRequest", requestId=told["requestId"], responseCode=200, responseHeaders=headers, body=body)

    def evaluate(self, script):
        """The value of an expression, awaited."""
        told = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"].get("exception", {}).get("description", script))
        return told["result"].get("value")

    def wait(self, script, seconds=20):
        """Waits until an expression is true; returns False after the timeout."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.tend()
            try:
                if self.evaluate(f"Boolean({script})"):
                    return True
            except RuntimeError:
                # The page is between two documents, or lacks the element.
                pass
            self.browser.listen(0.1)
        return False

    def save_to(self, folder):
        """Saves downloads in a directory."""
        self.browser.call("Browser.setDownloadBehavior", behavior="allow", browserContextId=self.context, downloadPath=folder)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code):
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def accessibility(self):
        """Role and name of every element in the accessibility tree."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        shown = [node for node in nodes if not node.get("ignored")]
        return [(node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in shown]

    def screenshot(self, path):
        """A screenshot of the whole page."""
        box = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
