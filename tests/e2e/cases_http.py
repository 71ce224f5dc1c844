"""What HTTP clients see."""

import hashlib
import json
import os
import re

import origin
from cases import case
from proc import Failure, check, equal, until
from raw import Client, ask
from world import LIMITED, OURS, SMALL, STRICT, WEB


@case("GET through curl gives the origin's answer")
def get(world):
    _, out, _ = world.curl(world.url("/"))
    equal(out, "hello from the origin\n", "body")


@case("HEAD has the headers of GET and no body, and the connection goes on")
def head(world):
    with Client(OURS, WEB) as c:
        c.send("HEAD /py/size/1000 HTTP/1.1\nHost: a\n\nGET /py/size/3 HTTP/1.1\nHost: a\n\n")
        first = c.answer("HEAD")
        equal((first.status, first.get("content-length")), (200, "1000"), "HEAD")
        equal(c.answer().body, origin.pattern(3), "the next answer's body")


@case("POST with Content-Length, and chunked, reaches the origin whole")
def post(world):
    data = os.path.join(world.folder, "post")
    with open(data, "wb") as f:
        f.write(origin.pattern(300_000))
    _, plain, _ = world.curl("--data-binary", f"@{data}", world.url("/py/hash"))
    _, chunked, _ = world.curl("-H", "Transfer-Encoding: chunked", "--data-binary", f"@{data}",
                               world.url("/py/hash"))
    expected = f"{hashlib.sha256(origin.pattern(300_000)).hexdigest()} 300000\n"
    equal((plain, chunked), (expected, expected), "hashes")


@case("an answer in chunks, or up to the close, arrives whole")
def streamed(world):
    for what in ("chunked", "close"):
        for size in (0, 1, 100, 1_000_000):
            if what == "close" and size == 0:
                continue
            a = ask(OURS, WEB, f"GET /py/{what}/{size} HTTP/1.1\nHost: a\nConnection: close\n\n")
            check(a.whole, f"{what}/{size} is cut: {a}")
            check(a.body == origin.pattern(size), f"{what}/{size} differs")


@case("an HTTP/1.0 client gets an answer it understands, then the close")
def http10(world):
    with Client(OURS, WEB) as c:
        a = c.send("GET /py/chunked/5000 HTTP/1.0\n\n").answer()
        check("transfer-encoding" not in {n.lower() for n, _ in a.headers}, f"chunked for 1.0: {a}")
        equal(a.body, origin.pattern(5000), "body")
        equal(c.is_closed(), "fin", "end")


@case("Expect: 100-continue: the body goes only after the word, and the answer follows")
def expect(world):
    with Client(OURS, WEB) as c:
        c.send("POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 5\nExpect: 100-continue\n\n")
        equal(c.answer(interim=True).status, 100, "interim answer")
        a = c.send("hello").answer()
        check(a.body.endswith(b" 5\n"), f"{a}")
    a = ask(OURS, WEB, "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 5\nExpect: miracles\n\n")
    equal(a.status, 417, "an expectation that nobody knows")


@case("an interim answer (103) reaches an HTTP/1.1 client before the final one")
def interim(world):
    with Client(OURS, WEB) as c:
        c.send("GET /py/interim HTTP/1.1\nHost: a\n\n")
        first = c.answer(interim=True)
        equal((first.status, first.get("link")), (103, "</s.css>"), "interim answer")
        equal(c.answer().body, b"after the hints\n", "final answer")


@case("keep-alive: a hundred requests on one connection, few connections to the origin")
def keepalive(world):
    before = world.scripted.listener.accepted
    with Client(OURS, WEB) as c:
        for i in range(100):
            a = c.send(f"GET /py/size/{i} HTTP/1.1\nHost: a\n\n").answer()
            equal(len(a.body), i, "length")
    opened = world.scripted.listener.accepted - before
    check(opened <= 2, f"{opened} connections to the origin for 100 requests")


@case("pipelining: answers come in the order of the requests")
def pipelining(world):
    with Client(OURS, WEB) as c:
        sizes = [7, 0, 70_000, 1, 12]
        c.send("".join(f"GET /py/size/{n} HTTP/1.1\nHost: a\n\n" for n in sizes))
        for n in sizes:
            equal(c.answer().body, origin.pattern(n), f"answer of {n} bytes")


@case("a request in single bytes is as good as one in one piece")
def bytewise(world):
    with Client(OURS, WEB) as c:
        text = "POST /py/hash HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" \
               "3;q=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
        for byte in text.encode():
            c.send(bytes([byte]))
        check(c.answer().body.endswith(b" 3\n"), "body")


def seen(world, request, port=WEB):
    a = ask(OURS, port, request)
    equal(a.status, 200, f"status of {request!r}")
    return json.loads(a.body), a


@case("forwarded headers, Via and Host as the origin sees them; hop-by-hop headers stay here")
def forwarded(world):
    got, a = seen(world, "GET /py/echo HTTP/1.1\nHost: name.test\nX-Forwarded-For: 9.9.9.9\n"
                  "Connection: X-Mine\nX-Mine: 1\nKeep-Alive: 5\nTE: gzip\nUpgrade: foo\n"
                  "Proxy-Connection: x\nX-Kept: yes\n\n")
    low = {}
    for name, value in got["headers"]:
        low.setdefault(name.lower(), []).append(value)
    equal(low.get("host"), ["name.test"], "Host")
    check("9.9.9.9, 10.78.0.2" in ", ".join(low.get("x-forwarded-for", [])), f"X-F-F: {low}")
    equal(low.get("x-forwarded-proto"), ["http"], "X-Forwarded-Proto")
    equal(low.get("x-kept"), ["yes"], "an end-to-end header")
    for name in ("x-mine", "keep-alive", "te", "upgrade", "proxy-connection"):
        check(name not in low, f"hop-by-hop {name} went through")
    check("via" in low, f"no Via in the request: {low}")
    check(a.get("via"), f"no Via in the answer: {a}")


@case("an answer's hop-by-hop headers stay here, its own go through")
def hop(world):
    a = ask(OURS, WEB, "GET /py/hop HTTP/1.1\nHost: a\n\n")
    for name in ("x-private", "keep-alive"):
        check(a.get(name) is None, f"{name} went through: {a}")
    equal(a.get("x-public"), "2", "X-Public")


@case("trailers go through, both ways")
def trailers(world):
    with Client(OURS, WEB) as c:
        c.send("GET /py/trailer HTTP/1.1\nHost: a\nTE: trailers\nConnection: TE\n\n")
        a = c.answer()
        equal((a.body, a.whole), (b"hello", True), "body")
    a = ask(OURS, WEB, "POST /py/trailers HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n"
            "Trailer: X-Sum\n\n5\nhello\n0\nX-Sum: 42\n\n")
    equal(a.status, 200, "status")
    check(a.body.lower() in (b'["x-sum: 42"]', b"[]"), f"trailers: {a.body}")


@case("routes: exact host, suffix, any, longest path prefix")
def routes(world):
    for host, path, by_script in (("exact.test", "/echo", True), ("EXACT.test:8080", "/echo", True),
                                  ("a.b.wild.test", "/echo", True), ("wild.test", "/", False),
                                  ("other.test", "/", False), ("other.test", "/py/echo", True)):
        a = ask(OURS, WEB, f"GET {path} HTTP/1.1\nHost: {host}\n\n")
        equal(a.body.startswith(b"{"), by_script, f"{host}{path} goes to the scripted origin")


# What is refused, and with which answer. Every one is answered and closed, or ends cleanly.
REFUSED = [
    ("no version", "GET /\n\n", WEB, (400,)),
    ("no host", "GET / HTTP/1.1\n\n", WEB, (400,)),
    ("two hosts", "GET / HTTP/1.1\nHost: a\nHost: b\n\n", WEB, (400,)),
    ("blank before colon", "GET / HTTP/1.1\nHost : a\n\n", WEB, (400,)),
    ("folded header", "GET / HTTP/1.1\nHost: a\nX: 1\n 2\n\n", WEB, (400,)),
    ("both lengths", "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 3\n"
     "Transfer-Encoding: chunked\n\n0\n\n", WEB, (400,)),
    ("two lengths", "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 3\nContent-Length: 4\n\nabcd",
     WEB, (400,)),
    ("list of lengths", "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 3, 3\n\nabc", WEB, (400,)),
    ("signed length", "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: +3\n\nabc", WEB, (400,)),
    ("chunked not last", "POST /py/hash HTTP/1.1\nHost: a\nTransfer-Encoding: chunked, gzip\n\n",
     WEB, (400, 501)),
    ("unknown coding", "POST /py/hash HTTP/1.1\nHost: a\nTransfer-Encoding: xyzzy\n\n", WEB,
     (400, 501)),
    ("chunked in 1.0", "POST /py/hash HTTP/1.0\nHost: a\nTransfer-Encoding: chunked\n\n0\n\n", WEB,
     (400,)),
    ("bad chunk size", "POST /py/hash HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\nxyz\n", WEB,
     (400,)),
    ("chunk too long", "POST /py/hash HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n"
     "2\nabcd\n0\n\n", WEB, (400,)),
    ("path out of the root", "GET /../../etc/passwd HTTP/1.1\nHost: a\n\n", WEB, (400,)),
    ("NUL in a header", "GET / HTTP/1.1\nHost: a\nX: a\0b\n\n", WEB, (400,)),
    ("TLS to a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 100, WEB,
     (400,)),
    ("HTTP/2 preface", "PRI * HTTP/2.0\n\nSM\n\n", WEB, (400, 405, 505)),
    ("version 2", "GET / HTTP/2.0\nHost: a\n\n", WEB, (400, 505)),
    ("CONNECT", "CONNECT a:443 HTTP/1.1\nHost: a:443\n\n", WEB, (400, 405, 501)),
    ("TRACE", "TRACE / HTTP/1.1\nHost: a\n\n", WEB, (405, 501)),
    ("unserved path", "GET /else HTTP/1.1\nHost: a\n\n", SMALL, (404,)),
    ("unserved host", "GET /py/echo HTTP/1.1\nHost: elsewhere.test\n\n", STRICT, (421,)),
    ("body over the limit", "POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 2000\n\n", SMALL,
     (413,)),
    ("chunks over the limit", "POST /py/hash HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\n\n"
     "fff\n" + "x" * 4095 + "\n0\n\n", SMALL, (413,)),
    ("target over the limit", "GET /py/" + "x" * 8000 + " HTTP/1.1\nHost: a\n\n", SMALL, (414, 431)),
    ("header over the limit", "GET /py/echo HTTP/1.1\nHost: a\nX: " + "x" * 8000 + "\n\n", SMALL,
     (431,)),
    ("too many headers", "GET /py/echo HTTP/1.1\nHost: a\n" + "X: y\n" * 30 + "\n", SMALL, (431,)),
    ("origin refuses", "GET /dead HTTP/1.1\nHost: a\n\n", WEB, (502, 503)),
    ("origin resets", "GET /py/reset HTTP/1.1\nHost: a\n\n", WEB, (502,)),
    ("origin closes unheard", "GET /impatient/silent HTTP/1.1\nHost: a\n\n", WEB, (504,)),
    ("origin talks SSH", "GET /py/garbage HTTP/1.1\nHost: a\n\n", WEB, (502,)),
    ("origin gives two lengths", "GET /py/twolengths HTTP/1.1\nHost: a\n\n", WEB, (502,)),
]


@case("what must be refused is refused with the right status, one by one")
def refused(world):
    wrong = []
    for name, request, port, expected in REFUSED:
        try:
            a = ask(OURS, port, request)
            if a.status not in expected:
                wrong.append(f"{name}: {a.status}, expected {expected}")
            if a.status >= 400 and not a.whole:
                wrong.append(f"{name}: the error's own body is cut")
        except Exception as e:  # pylint: disable=broad-except
            wrong.append(f"{name}: {e}")
    check(not wrong, "\n".join(wrong))
    world.still_serves()


@case("a bare LF or CR is never a way to smuggle a second request")
def smuggling(world):
    before = len(world.scripted.seen)
    for text in (b"GET /py/echo HTTP/1.1\nHost: a\n\n", b"GET /py/echo HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
                 b"POST /py/hash HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
                 b"POST /py/hash HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                 b"1\nZ\r\n0\r\n\r\n"):
        a = ask(OURS, WEB, text)
        equal(a.status, 400, f"answer to {text!r}")
    got = [r for r in world.scripted.seen[before:] if r["target"].endswith("echo")]
    check(not got, f"reached the origin: {got}")


@case("timeouts: a slow head gets 408, a slow body 408, an idle connection is closed")
def timeouts(world):
    with Client(OURS, SMALL) as c:
        c.send("GET /py/echo HT")
        equal(c.answer().status, 408, "a head that stops")
    with Client(OURS, SMALL) as c:
        c.send("POST /py/hash HTTP/1.1\nHost: a\nContent-Length: 100\n\nabc")
        equal(c.answer().status, 408, "a body that stops")
    with Client(OURS, SMALL) as c:
        c.send("GET /py/size/1 HTTP/1.1\nHost: a\n\n")
        equal(c.answer().status, 200, "before the idle time")
        check(c.is_closed(6), "idle connection stays open")
    with Client(OURS, SMALL) as c:
        check(c.is_closed(6), "connection that never speaks stays open")


@case("slowloris: two hundred heads that trickle are cut at the deadline, others are served")
def slowloris(world):
    clients = [Client(OURS, SMALL) for _ in range(200)]
    for c in clients:
        c.send("GET /py/echo HTTP/1.1\nHost: a\nX-")
    world.still_serves()
    for c in clients:
        equal(c.answer().status, 408, "a trickling head")
        c.close()
    world.still_serves()


@case("a listener's connection limit refuses, and lets in again when there is room")
def connections(world):
    held = [Client(OURS, LIMITED) for _ in range(4)]
    for c in held:
        equal(c.send("GET /size/1 HTTP/1.1\nHost: a\n\n").answer().status, 200, "within the limit")
    refused_as = None
    try:
        with Client(OURS, LIMITED, timeout=3) as c:
            refused_as = c.send("GET /size/1 HTTP/1.1\nHost: a\n\n").answer().status
    except OSError as e:
        refused_as = str(e)
    except Exception as e:  # pylint: disable=broad-except
        refused_as = f"closed: {e}"
    check(refused_as != 200, "a fifth connection was served")
    for c in held:
        c.close()

    def again():
        try:
            return ask(OURS, LIMITED, "GET /size/1 HTTP/1.1\nHost: a\n\n", timeout=3).status == 200
        except Exception:  # pylint: disable=broad-except
            return False
    until(again, 10, "room again")


# (target, does the origin lie in the head already: a status; or in the body: a cut)
LIES = [("short/5000", "cut"), ("badchunk", "cut"), ("cutchunk", "cut"), ("long/5", "whole"),
        ("hang", "cut")]


@case("an origin that lies about its length never makes a whole body of a part")
def lies(world):
    for target, expected in LIES:
        prefix = "/impatient" if target == "hang" else "/py"
        with Client(OURS, WEB) as c:
            try:
                a = c.send(f"GET {prefix}/{target} HTTP/1.1\nHost: a\n\n").answer()
            except Failure:
                # Nothing but a reset: as visible a cut as one after half the bytes.
                equal((c.ended, expected), ("rst", "cut"), f"{target} without an answer")
                continue
            is_whole = a.whole and a.status == 200
            equal(is_whole, expected == "whole", f"{target} looks whole")
            if expected == "whole":
                equal(a.body, origin.pattern(5), "promised bytes")
                nxt = c.send("GET /py/size/2 HTTP/1.1\nHost: a\n\n").answer()
                equal(nxt.body, origin.pattern(2), "the answer after a liar's")


@case("a pooled connection that the origin has closed is not used")
def stale(world):
    for _ in range(50):
        closed = world.scripted.listener.closed
        a = ask(OURS, WEB, "GET /py/bye HTTP/1.1\nHost: a\n\n")
        equal((a.status, a.body), (200, b"bye\n"), "answer")
        until(lambda before=closed: world.scripted.listener.closed > before, 5, "the close",
              pause=0.001)


@case("a client that goes away ends the work for it")
def gone(world):
    before = len(world.scripted.seen)
    with Client(OURS, WEB) as c:
        c.send("GET /py/silent HTTP/1.1\nHost: a\n\n")
        until(lambda: len(world.scripted.seen) > before, 5, "the request at the origin")
        open_before = len(world.scripted.listener.conns)
    until(lambda: len(world.scripted.listener.conns) < open_before, 5,
          "the origin's connection is given up when the client is gone")


@case("an origin that answers before the body is read: the answer arrives")
def early(world):
    with Client(OURS, WEB) as c:
        c.send("POST /py/early HTTP/1.1\nHost: a\nContent-Length: 100000\n\nx")
        equal(c.answer().status, 403, "early answer")


@case("status codes without a body (204, 304) end where they should")
def bodiless(world):
    with Client(OURS, WEB) as c:
        for n in (204, 304, 200):
            a = c.send(f"GET /py/status/{n} HTTP/1.1\nHost: a\n\n").answer()
            equal(a.status, n, "status")


@case("the access log has a line for a request, with status and duration")
def access_log(world):
    mark = f"/py/echo?mark={os.getpid()}"
    ask(OURS, WEB, f"GET {mark} HTTP/1.1\nHost: log.test\n\n")
    path = os.path.join(world.folder, "access.log")

    def line():
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as f:
            return next((text for text in f if mark in text), None)
    record = json.loads(until(line, 5, "the line in the access log"))
    equal(record.get("status"), 200, "status in the log")


@case("metrics: Prometheus text, and the counters move")
def metrics(world):
    def requests():
        _, out, _ = world.curl("http://127.0.0.1:9901/metrics")
        found = re.findall(r"^(millrace_\w*requests\w*)(?:\{[^}]*\})? (\S+)$", out, re.M)
        check(found, f"no request counter in:\n{out[:1500]}")
        return sum(float(v) for _, v in found)
    before = requests()
    world.still_serves()
    check(requests() > before, "counters stand still")
