"""Many bytes: every one of them, in order, whatever the wire does."""

import hashlib
import os
import platform
import re
import threading

from cases import case
from origin import pattern
from proc import HERE, check, equal, random_file, sh
from raw import Client
from world import DEVICE, L4, L4ECHO, L4SUM, OURS, WEB, wait_quiet

MIB = 1 << 20


def download(world, size, port, seconds):
    name, expected = world.file(size)
    path = os.path.join(world.folder, f"got.{port}.{threading.get_ident()}")
    world.curl("-o", path, world.url("/" + name, port), timeout=seconds)
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while True:
            block = f.read(MIB)
            if not block:
                break
            digest.update(block)
    os.unlink(path)
    equal(digest.hexdigest(), expected, f"SHA-256 of {name} through port {port}")


def upload_http(world, size, seconds):
    path = os.path.join(world.folder, f"up{size}")
    expected = random_file(path, size)
    _, out, _ = world.curl("-T", path, "-X", "POST", "-H", "Expect:", world.url("/py/hash"),
                           timeout=seconds)
    os.unlink(path)
    equal(out, f"{expected} {size}\n", "SHA-256 at the origin")


def upload_l4(size, seconds):
    digest, block, left = hashlib.sha256(), os.urandom(MIB), size
    with Client(OURS, L4SUM, timeout=seconds) as c:
        while left:
            piece = block[:min(left, MIB)]
            c.send(piece)
            digest.update(piece)
            left -= len(piece)
        c.sock.shutdown(1)
        while c.more():
            pass
        equal(c.data.decode(), f"{digest.hexdigest()} {size}\n", "SHA-256 behind the tunnel")


@case("64 MiB down and up through HTTP, SHA-256 equal")
def http_64m(world):
    download(world, 64 * MIB, WEB, 60)
    upload_http(world, 64 * MIB, 60)


@case("64 MiB down and up through the tunnel, SHA-256 equal, half-close kept")
def l4_64m(world):
    download(world, 64 * MIB, L4, 60)
    upload_l4(64 * MIB, 60)


@case("1 GiB down and up through HTTP, SHA-256 equal", long=True, seconds=300)
def http_1g(world):
    download(world, 1024 * MIB, WEB, 140)
    upload_http(world, 1024 * MIB, 140)


@case("1 GiB down and up through the tunnel, SHA-256 equal", long=True, seconds=300)
def l4_1g(world):
    download(world, 1024 * MIB, L4, 140)
    upload_l4(1024 * MIB, 140)


@case("a tunnel echoes in both directions at once and closes one way at a time")
def l4_echo(world):
    data = pattern(3 * MIB)
    with Client(OURS, L4ECHO, timeout=30) as c:
        sender = threading.Thread(target=lambda: (c.sock.sendall(data), c.sock.shutdown(1)))
        sender.start()
        while c.more():
            pass
        sender.join()
        equal(c.ended, "fin", "end of the echo")
        check(c.data == data, f"echo differs: {len(c.data)} of {len(data)} bytes")


def parallel(world, count, size, seconds):
    world.file(size)
    failures = []

    def one():
        try:
            download(world, size, WEB, seconds)
        except Exception as e:  # pylint: disable=broad-except
            failures.append(str(e))
    threads = [threading.Thread(target=one) for _ in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check(not failures, "\n".join(failures[:5]))


@case("20 downloads of 16 MiB at once")
def parallel_short(world):
    parallel(world, 20, 16 * MIB, 90)


@case("20 downloads of 64 MiB at once", long=True, seconds=300)
def parallel_long(world):
    parallel(world, 20, 64 * MIB, 200)


@case("a client that reads slowly holds the origin back, not the proxy's memory")
def slow_reader(world):
    name, _ = world.file(64 * MIB)
    with Client(OURS, WEB, rcvbuf=8192) as c:
        c.send(f"GET /{name} HTTP/1.1\nHost: a\n\n")
        c.head()
        free = [free_mbufs(world)]
        for _ in range(40):
            c.take(10_000)
            free.append(free_mbufs(world))
        world.still_serves()
        check(min(free) > 0, f"mbufs ran out: {free}")


def free_mbufs(world):
    return world.proxy.status()["cores"][0]["mbufs"]["available"]


class Loss:
    """Packets lost on the wire, per mille, both ways, while the block runs."""

    def __init__(self, folder, permille, device=DEVICE):
        self.object = os.path.join(folder, f"loss{permille}.o")
        self.device = device
        sh("clang", "-O2", "-target", "bpf", f"-DLOSS_PERMILLE={permille}",
           f"-I/usr/include/{platform.machine()}-linux-gnu", "-c",
           os.path.join(HERE, "loss.bpf.c"), "-o", self.object)

    def __enter__(self):
        sh("tc", "qdisc", "add", "dev", self.device, "clsact")
        try:
            for way in ("ingress", "egress"):
                sh("tc", "filter", "add", "dev", self.device, way, "bpf", "da", "obj", self.object,
                   "sec", "tc")
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        sh("tc", "qdisc", "del", "dev", self.device, "clsact", ok=False)


def lossy(world, size, download_port, upload, seconds):
    with Loss(world.folder, 20):
        download(world, size, download_port, seconds)
        upload(size, seconds)


@case("8 MiB each way while 2 % of the packets are lost", seconds=130)
def loss(world):
    lossy(world, 8 * MIB, WEB, lambda size, seconds: upload_http(world, size, seconds), 60)


@case("8 MiB each way through the tunnel while 2 % are lost", seconds=130)
def loss_l4(world):
    lossy(world, 8 * MIB, L4, upload_l4, 60)


@case("64 MiB each way while 2 % of the packets are lost", long=True, seconds=500)
def loss_long(world):
    lossy(world, 64 * MIB, WEB, lambda size, seconds: upload_http(world, size, seconds), 240)


@case("small requests while 10 % of the packets are lost", seconds=90)
def loss_small(world):
    with Loss(world.folder, 100):
        for i in range(20):
            with Client(OURS, WEB, timeout=60) as c:
                a = c.send(f"GET /py/size/{i * 500} HTTP/1.1\nHost: a\n\n").answer()
                check(a.whole and a.body == pattern(i * 500), f"{i}: {a}")


def wrk(world, connections, seconds, path="/"):
    _, out, _ = sh("wrk", "-t", "1", "-c", str(connections), "-d", str(seconds), "--timeout", "5s",
                   world.url(path), timeout=seconds + 30)
    check("Socket errors" not in out and "Non-2xx" not in out, out)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", out)
    check(rate and float(rate.group(1)) > 100, out)
    return float(rate.group(1))


@case("wrk -c 64 -d 5s: no error, and nothing left over")
def wrk_short(world):
    wrk(world, 64, 5)
    wait_quiet(world.proxy)


@case("wrk -c 256 -d 60s: no error, and nothing left over", long=True, seconds=150)
def wrk_long(world):
    wrk(world, 256, 60)
    wait_quiet(world.proxy)


@case("a new connection for every request, thousands of times", seconds=90)
def churn(world):
    script = os.path.join(world.folder, "close.lua")
    with open(script, "w", encoding="utf-8") as f:
        f.write('wrk.headers["Connection"] = "close"\n')
    _, out, _ = sh("wrk", "-t", "1", "-c", "32", "-d", "5s", "--timeout", "5s", "-s", script,
                   world.url("/"), timeout=60)
    check("Socket errors" not in out and "Non-2xx" not in out, out)
    wait_quiet(world.proxy)
