"""A client that sends exactly the bytes a test wants and reads answers without being clever."""

import socket
import time

from proc import Failure, check


class Answer:
    def __init__(self, version, status, reason, headers, body, whole):
        self.version, self.status, self.reason = version, status, reason
        self.headers, self.body, self.whole = headers, body, whole

    def get(self, name, default=None):
        values = [v for n, v in self.headers if n.lower() == name.lower()]
        return values[0] if values else default

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:80]!r} whole={self.whole}>"


class Client:
    """One TCP connection."""

    def __init__(self, host, port, timeout=10, rcvbuf=None, source=None):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if source:
            self.sock.bind((source, 0))
        self.sock.settimeout(timeout)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.ended = None  # "fin", "rst", "silence"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        if isinstance(data, str):
            data = data.replace("\n", "\r\n").encode("latin-1")
        self.sock.sendall(data)
        return self

    def more(self):
        """Reads once; False at the end of the stream, which `ended` then explains."""
        if self.ended:
            return False
        try:
            piece = self.sock.recv(65536)
        except ConnectionResetError:
            self.ended = "rst"
            return False
        except (socket.timeout, TimeoutError):
            self.ended = "silence"
            return False
        if not piece:
            self.ended = "fin"
            return False
        self.data += piece
        return True

    def take(self, n):
        while len(self.data) < n:
            if not self.more():
                break
        piece, self.data = self.data[:n], self.data[n:]
        return piece

    def line(self):
        while b"\r\n" not in self.data:
            if not self.more():
                raise Failure(f"no line before the {self.ended}: {self.data[:200]!r}")
        line, _, self.data = self.data.partition(b"\r\n")
        return line.decode("latin-1")

    def head(self):
        first = self.line()
        version, _, rest = first.partition(" ")
        status, _, reason = rest.partition(" ")
        check(version.startswith("HTTP/1.") and status.isdigit(), f"not a status line: {first!r}")
        headers = []
        while True:
            line = self.line()
            if not line:
                return version, int(status), reason, headers
            name, colon, value = line.partition(":")
            check(colon, f"not a header: {line!r}")
            headers.append((name, value.strip()))

    def chunks(self):
        body = b""
        while True:
            size = int(self.line().split(";")[0], 16)
            if size == 0:
                while self.line():
                    pass
                return body, True
            piece = self.take(size)
            body += piece
            if len(piece) < size:
                return body, False
            if self.take(2) != b"\r\n":
                return body, False

    def answer(self, to="GET", interim=False):
        """The next answer; 1xx are skipped unless asked for."""
        version, status, reason, headers = self.head()
        answer = Answer(version, status, reason, headers, b"", True)
        if 100 <= status < 200:
            return answer if interim else self.answer(to)
        if to == "HEAD" or status in (204, 304):
            return answer
        if "chunked" in (answer.get("transfer-encoding") or "").lower():
            try:
                answer.body, answer.whole = self.chunks()
            except (Failure, ValueError):
                answer.whole = False
        elif answer.get("content-length") is not None:
            size = int(answer.get("content-length"))
            answer.body = self.take(size)
            answer.whole = len(answer.body) == size
        else:
            while self.more():
                pass
            answer.body, self.data = self.data, b""
            answer.whole = self.ended == "fin"
        return answer

    def is_closed(self, within=5):
        """Waits for the peer to close; how it did, or None."""
        end = time.monotonic() + within
        while not self.ended and time.monotonic() < end:
            self.sock.settimeout(max(0.01, end - time.monotonic()))
            self.more()
        return self.ended if self.ended in ("fin", "rst") else None


def ask(host, port, request, to="GET", timeout=10):
    """One request on a connection of its own."""
    with Client(host, port, timeout) as c:
        return c.send(request).answer(to)
