"""Origins that do as they are told: honest ones by path, and liars by port."""

import hashlib
import json
import socket
import struct
import threading
import time

PATTERN = bytes(range(256)) * 256


def pattern(size):
    """`size` bytes that both sides know."""
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


class Listener:
    """Accepts on a thread of its own, hands every connection to a thread."""

    def __init__(self, host, port, serve):
        self.serve, self.accepted, self.closed, self.conns = serve, 0, 0, []
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((host, port))
        self.sock.listen(1024)
        threading.Thread(target=self.loop, daemon=True).start()

    def loop(self):
        while True:
            try:
                conn, _ = self.sock.accept()
            except OSError:
                return
            self.accepted += 1
            self.conns.append(conn)
            threading.Thread(target=self.run, args=(conn,), daemon=True).start()

    def run(self, conn):
        try:
            self.serve(conn)
        except OSError:
            pass
        finally:
            conn.close()
            self.closed += 1
            if conn in self.conns:
                self.conns.remove(conn)

    def stop(self):
        """As a killed process leaves it: nothing listens, every connection reset."""
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        for conn in list(self.conns):
            try:
                reset(conn)
            except OSError:
                pass


class Reader:
    def __init__(self, conn):
        self.conn, self.data = conn, b""

    def fill(self):
        piece = self.conn.recv(1 << 18)
        self.data += piece
        return bool(piece)

    def until(self, mark):
        while mark not in self.data:
            if not self.fill():
                return None
        head, _, self.data = self.data.partition(mark)
        return head

    def pieces(self, size):
        while size:
            if not self.data and not self.fill():
                raise OSError("request body cut short")
            piece, self.data = self.data[:size], self.data[size:]
            size -= len(piece)
            yield piece

    def chunks(self):
        while True:
            size = int(self.until(b"\r\n").split(b";")[0], 16)
            if size == 0:
                self.trailers = []
                while True:
                    line = self.until(b"\r\n")
                    if not line:
                        return
                    self.trailers.append(line.decode("latin-1"))
            yield from self.pieces(size)
            self.until(b"\r\n")


class Scripted:
    """An HTTP/1.1 origin whose answer is in the path: /echo, /hash, /size/N, /chunked/N, /close/N,
    /short/N, /badchunk, /slow/MS, /silent, /reset, /garbage, /status/N, /interim, /hop, /trailer,
    /bye."""

    def __init__(self, host, port):
        self.seen = []
        self.listener = Listener(host, port, self.serve)

    def stop(self):
        self.listener.stop()

    def serve(self, conn):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = Reader(conn)
        while True:
            head = reader.until(b"\r\n\r\n")
            if head is None:
                return
            lines = head.decode("latin-1").split("\r\n")
            method, target, version = lines[0].split(" ")
            headers = [tuple(x.strip() for x in line.split(":", 1)) for line in lines[1:]]
            request = {"method": method, "target": target, "version": version, "headers": headers}
            self.seen.append(request)
            if not self.answer(conn, reader, request):
                return

    @staticmethod
    def body(conn, reader, request):
        low = {n.lower(): v for n, v in request["headers"]}
        if low.get("expect", "").lower() == "100-continue":
            conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        reader.trailers = []
        digest, size = hashlib.sha256(), 0
        if "chunked" in low.get("transfer-encoding", "").lower():
            pieces = reader.chunks()
        else:
            pieces = reader.pieces(int(low.get("content-length", "0")))
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        return digest.hexdigest(), size

    def answer(self, conn, reader, request):
        words = request["target"].split("?")[0].strip("/").split("/")
        if words[:1] in (["py"], ["impatient"]):
            words = words[1:]
        what, argument = words[0] if words else "", words[1] if len(words) > 1 else "0"
        if what == "early":
            conn.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
            return False
        if what == "slowread":
            time.sleep(int(argument) / 1000)
        sha, size = self.body(conn, reader, request)
        handler = getattr(self, "do_" + what, None)
        if handler:
            return handler(conn, request, int(argument))
        if what in ("hash", "slowread"):
            return self.reply(conn, request, f"{sha} {size}\n".encode())
        if what == "trailers":
            return self.reply(conn, request, json.dumps(reader.trailers).encode())
        return self.reply(conn, request, json.dumps(request).encode(), "application/json")

    @staticmethod
    def reply(conn, request, body, kind="text/plain", extra=""):
        head = (f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                f"{extra}\r\n")
        conn.sendall(head.encode() + (b"" if request["method"] == "HEAD" else body))
        return True

    def do_size(self, conn, request, n):
        return self.reply(conn, request, pattern(n))

    @staticmethod
    def do_chunked(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        body, at, step = pattern(n), 0, 1
        while at < n:
            piece = body[at:at + step]
            conn.sendall(b"%x;x=y\r\n%s\r\n" % (len(piece), piece))
            at += len(piece)
            step = step * 3 % 60007 + 1
        conn.sendall(b"0\r\n\r\n")
        return True

    @staticmethod
    def do_close(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + pattern(n))
        return False

    @staticmethod
    def do_short(conn, request, n):
        """Promises twice what it sends."""
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * n) + pattern(n))
        return False

    @staticmethod
    def do_long(conn, request, n):
        """Sends more than it promised: the rest must not reach anyone."""
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n + pattern(n)
                     + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        return True

    @staticmethod
    def do_badchunk(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
        time.sleep(0.2)
        return False

    @staticmethod
    def do_cutchunk(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        return False

    def do_slow(self, conn, request, ms):
        time.sleep(ms / 1000)
        return self.reply(conn, request, b"slow\n")

    @staticmethod
    def do_silent(conn, request, n):
        while conn.recv(65536):
            pass
        return False

    @staticmethod
    def do_reset(conn, request, n):
        reset(conn)
        return False

    @staticmethod
    def do_hang(conn, request, n):
        """A head and half a body, then nothing."""
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")
        while conn.recv(65536):
            pass
        return False

    @staticmethod
    def do_garbage(conn, request, n):
        conn.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n\r\n")
        return False

    @staticmethod
    def do_twolengths(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde")
        return False

    @staticmethod
    def do_status(conn, request, n):
        body = b"" if n in (204, 304) else b"status\n"
        length = b"" if n == 204 else b"Content-Length: %d\r\n" % len(body)
        conn.sendall(b"HTTP/1.1 %d Such\r\nETag: \"x\"\r\n%s\r\n%s" % (n, length, body))
        return True

    def do_interim(self, conn, request, n):
        conn.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n")
        return self.reply(conn, request, b"after the hints\n")

    def do_hop(self, conn, request, n):
        return self.reply(conn, request, b"hop\n", extra="Connection: X-Private, keep-alive\r\n"
                          "X-Private: 1\r\nKeep-Alive: timeout=5\r\nX-Public: 2\r\n"
                          "Proxy-Authenticate: Basic\r\n")

    @staticmethod
    def do_trailer(conn, request, n):
        conn.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
                     b"5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n")
        return True

    def do_bye(self, conn, request, n):
        """Answers as if the connection stayed, then closes it at once."""
        self.reply(conn, request, b"bye\n")
        return False

    @staticmethod
    def do_drip(conn, request, n):
        """n bytes, one every 50 ms."""
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n)
        for byte in pattern(n):
            conn.sendall(bytes([byte]))
            time.sleep(0.05)
        return True

    @staticmethod
    def do_driphead(conn, request, n):
        """A head that takes n times 50 ms."""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Slow: " + b"x" * n + b"\r\n\r\n"
        for byte in head:
            conn.sendall(bytes([byte]))
            time.sleep(0.05)
        return True


def echo(conn):
    """Gives back what comes, and the end of it too."""
    while True:
        data = conn.recv(1 << 16)
        if not data:
            conn.shutdown(socket.SHUT_WR)
            return
        conn.sendall(data)


def summing(conn):
    """Reads to the end of the stream, then answers with its SHA-256: needs half-close kept."""
    digest, size = hashlib.sha256(), 0
    while True:
        data = conn.recv(1 << 18)
        if not data:
            break
        digest.update(data)
        size += len(data)
    conn.sendall(f"{digest.hexdigest()} {size}\n".encode())


def sender(size):
    def serve(conn):
        block, left = pattern(1 << 18), size
        while left:
            piece = block[:min(left, len(block))]
            conn.sendall(piece)
            left -= len(piece)
    return serve
