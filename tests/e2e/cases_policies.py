"""Limits, retries, deadlines and ejection, as the real binary does them. Exact figures are the
flow tests' (virtual time); here statuses, order and counts are checked, and times told."""

import collections
import heapq
import json
import math
import os
import random
import re
import selectors
import signal
import socket
import threading
import time

import origin
from cases import case
from cases_life import Fresh
from cases_reload import put, read
from proc import Nginx, check, equal, numbers, until
from raw import Client, ask
from world import KERNEL, OURS, WEB, wait_quiet

LIMITED, STORM, THREE, HOLE = 9010, 9011, (9012, 9013, 9014), 9015
LIMIT, CLIENTS = 7, 64


def fresh(cores="0, 1"):
    return Fresh(template="policies.yaml", cores=cores, queues=str(len(cores.split(","))))


def get(path, host="a"):
    return f"GET {path} HTTP/1.1\nHost: {host}\n\n"


def upstream(world, name):
    return {u["name"]: u for u in world.proxy.status()["upstreams"]}[name]


def number(world, name, key):
    return numbers(upstream(world, name), key)


def records(world, path):
    """The access log's, one by one, of requests for paths that start so."""
    with open(os.path.join(world.folder, "access.log"), encoding="ascii") as f:
        for line in f:
            if path in line and line.endswith("\n"):
                record = json.loads(line)
                if record["target"].startswith(path):
                    yield record


def spread(name, times):
    times = sorted(times)
    p99 = times[min(len(times) - 1, len(times) * 99 // 100)]
    median, most = times[len(times) // 2], times[-1]
    print(f"# {name}: n {len(times)}, min {times[0] * 1000:.1f}, median {median * 1000:.1f}, "
          f"p99 {p99 * 1000:.1f}, max {most * 1000:.1f} ms")


def answer_to(client, method="GET"):
    """The status, or how the connection ended without one."""
    try:
        return client.answer(method).status
    except Exception:  # pylint: disable=broad-except
        return client.ended


class Counting:
    """An origin that counts what it has at once, on one thread, so that its count is exact.

    The proxy may have given a request up whose end is still on its way here, behind another core's
    new request. So what is one too many waits for the end of another, and meanwhile none is
    answered, lest an answer make room."""

    PATIENCE = 5

    def __init__(self, port):
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.sock.bind((KERNEL, port))
        self.sock.listen(1024)
        self.sock.setblocking(False)
        self.select = selectors.DefaultSelector()
        self.select.register(self.sock, selectors.EVENT_READ)
        self.data, self.due, self.extra = {}, {}, {}
        self.most = self.seen = self.over = 0
        self.ended = False
        self.service = (0.002, 0.02)
        self.thread = threading.Thread(target=self.loop, daemon=True)
        self.thread.start()

    def loop(self):
        while not self.ended:
            for key, _ in self.select.select(self.pause()):
                if key.fileobj is self.sock:
                    self.accept()
                else:
                    self.read(key.fileobj)
            self.admit()
            now = time.monotonic()
            for conn in [c for c, due in self.due.items() if due <= now and not self.extra]:
                del self.due[conn]
                self.say(conn)
        for conn in list(self.data):
            self.end(conn)
        self.select.close()
        self.sock.close()

    def pause(self):
        due = min(self.due.values(), default=0) if not self.extra else 0
        return max(0.001, min(0.05, due - time.monotonic())) if due else 0.05

    def accept(self):
        try:
            conn, _ = self.sock.accept()
        except OSError:
            return
        conn.setblocking(False)
        self.data[conn] = b""
        self.select.register(conn, selectors.EVENT_READ)

    def read(self, conn):
        try:
            piece = conn.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.end(conn)
            return
        self.data[conn] += piece
        if b"\r\n\r\n" in self.data[conn]:
            self.data[conn] = b""
            self.extra[conn] = time.monotonic() + self.PATIENCE

    def admit(self):
        """Counts those that have come, all ends of this turn being known."""
        now = time.monotonic()
        for conn, until_then in list(self.extra.items()):
            if len(self.due) >= LIMIT:
                if now < until_then:
                    return
                self.over += 1
            del self.extra[conn]
            self.due[conn] = now + random.uniform(*self.service)
            self.seen += 1
            self.most = max(self.most, len(self.due))

    def say(self, conn):
        try:
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except OSError:
            self.end(conn)

    def end(self, conn):
        self.due.pop(conn, None)
        self.extra.pop(conn, None)
        del self.data[conn]
        self.select.unregister(conn)
        conn.close()

    def stop(self):
        self.ended = True
        self.thread.join()


class Crowd:
    """Many clients on one thread. Each asks again and again, and is often killed while it waits."""

    def __init__(self, n, path, kill=0.8, patience=0.01):
        self.request = get(path).replace("\n", "\r\n").encode()
        self.kill, self.patience = kill, patience
        self.select, self.due, self.data = selectors.DefaultSelector(), [], {}
        self.killed, self.answers, self.n, self.count = 0, {}, n, 0

    def run(self, kills):
        for _ in range(self.n):
            self.join()
        while self.killed < kills:
            now = time.monotonic()
            pause = self.due[0][0] - now if self.due else 0.05
            for key, _ in self.select.select(max(0, min(0.05, pause))):
                self.read(key.fileobj)
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                _, number, sock, act = heapq.heappop(self.due)
                if sock in self.data and self.data[sock][0] == number:
                    act(sock)
        for sock in list(self.data):
            self.leave(sock)
        self.select.close()

    def join(self):
        sock = socket.create_connection((OURS, WEB), 30)
        self.select.register(sock, selectors.EVENT_READ)
        self.ask(sock)

    def leave(self, sock):
        del self.data[sock]
        self.select.unregister(sock)
        origin.reset(sock)

    def soon(self, sock, act):
        """Unless something else happens to it before."""
        due = time.monotonic() + random.uniform(0, self.patience)
        heapq.heappush(self.due, (due, self.data[sock][0], sock, act))

    def begin(self, sock):
        self.count += 1
        self.data[sock] = (self.count, b"")

    def ask(self, sock):
        self.begin(sock)
        sock.sendall(self.request)
        if random.random() < self.kill:
            self.soon(sock, self.die)

    def die(self, sock):
        self.killed += 1
        self.leave(sock)
        self.join()

    def read(self, sock):
        number, had = self.data[sock]
        piece = sock.recv(65536)
        check(piece, "a client's connection was closed in the middle")
        had += piece
        self.data[sock] = (number, had)
        head, end, body = had.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        if end and len(body) >= int(length[1]):
            status = int(head.split()[1])
            self.answers[status] = self.answers.get(status, 0) + 1
            if status == 200:
                self.ask(sock)
            else:
                self.begin(sock)
                self.soon(sock, self.ask)


class Load:
    """Threads that ask until told to stop."""

    def __init__(self, n, request, think):
        self.request, self.think, self.stopped = request, think, False
        self.ended, self.lock = [], threading.Lock()  # (when, what, how long it took)
        self.threads = [threading.Thread(target=self.run) for _ in range(n)]

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopped = True
        for t in self.threads:
            if t.is_alive():
                t.join()

    def run(self):
        while not self.stopped:
            try:
                with Client(OURS, WEB, timeout=30) as c:
                    while not self.stopped and self.one(c):
                        time.sleep(self.think)
            except OSError as e:
                self.note(type(e).__name__, time.monotonic())

    def note(self, what, start):
        now = time.monotonic()
        with self.lock:
            self.ended.append((now, what, now - start))

    def one(self, client):
        start = time.monotonic()
        client.send(self.request)
        got = answer_to(client)
        self.note(got, start)
        return isinstance(got, int) and not client.ended

    def between(self, start, end=math.inf):
        with self.lock:
            return [e for e in self.ended if start <= e[0] < end]

    def answers(self, start=0, end=math.inf):
        return dict(collections.Counter(what for _, what, _ in self.between(start, end)))

    def times(self, start=0, end=math.inf):
        return [took for _, _, took in self.between(start, end)]


class Reloading:
    """Reloads again and again; the limit moves, and is never above seven."""

    def __init__(self, world, every):
        self.world, self.every, self.count, self.ended = world, every, 0, threading.Event()
        self.text = read(world.config)
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self.put(LIMIT)

    def put(self, limit):
        put(self.world.config, self.text.replace("requests: 7", f"requests: {limit}"))
        self.world.proxy.admin("reload")

    def run(self):
        while not self.ended.wait(self.every):
            self.count += 1
            self.put(LIMIT - self.count % 3)


def limits(kills, reload_every):
    with fresh() as world:
        counting, crowd = world.origin(Counting(LIMITED)), Crowd(CLIENTS, "/limited")
        start = time.monotonic()
        with Reloading(world, reload_every) as reloading:
            crowd.run(kills)
        took = time.monotonic() - start
        check(set(crowd.answers) <= {200, 503}, lambda: f"answers: {crowd.answers}")
        wait_quiet(world.proxy)
        until(lambda: numbers(upstream(world, "limited"), "in_flight") == 0, 5, "no permit is held")
        equal(number(world, "limited", "queued"), 0, "requests that wait for one")
        equal((counting.over, counting.most), (0, LIMIT), "too many at once, and the most at once")
        # None is lost: seven still go at once, at once and not after somebody's time is up.
        counting.most, counting.service = 0, (0.5, 0.5)
        clients = [Client(OURS, WEB) for _ in range(LIMIT)]
        for c in clients:
            c.send(get("/limited/last"))
        equal([answer_to(c) for c in clients], [200] * LIMIT, "answers to seven at once")
        equal((counting.over, counting.most), (0, LIMIT), "of them at once")
        for c in clients:
            c.close()
        refused = collections.Counter(r["reason"] for r in records(world, "/limited")
                                      if r["status"] == 503)
        equal(set(refused) - {"queue_full", "queue_timeout"}, set(), "why 503")
        check(refused.total() >= crowd.answers.get(503, 0) > 0, f"{refused} of {crowd.answers}")
        print(f"# limits: {counting.seen} seen by the origin, {crowd.killed} killed in {took:.1f} s,"
              f" answers {crowd.answers}, {dict(refused)}, {reloading.count} reloads")


@case("limit 7, 64 clients of whom many are killed, two cores: the origin has never 8 at once, and "
      "no permit is lost", own=True)
def limits_hold(_):
    limits(3000, 0.3)


@case("limit 7, 64 clients, 100,000 kills, reloads all along: never 8 at once, no permit is lost",
      long=True, own=True, seconds=600)
def limits_hold_long(_):
    limits(100000, 0.1)


def timed(path, extra="", n=1, host="a"):
    """Statuses and times of n at once."""
    clients = [Client(OURS, WEB, timeout=20) for _ in range(n)]
    start, got = time.monotonic(), []
    for c in clients:
        c.send(f"GET {path} HTTP/1.1\nHost: {host}\n{extra}\n")
    for c in clients:
        got.append((answer_to(c), time.monotonic() - start))
        c.close()
    return [s for s, _ in got], [t for _, t in got]


def told(extra):
    """What the origin was told to be left, ms."""
    def answer():
        a = ask(OURS, WEB, f"GET /py/tell HTTP/1.1\nHost: a\n{extra}\n")
        return a if a.status == 200 else None  # on a machine so busy that it takes too long
    headers = json.loads(until(answer, 20, "an answer in time").body)["headers"]
    return int({n.lower(): v for n, v in headers}["x-left"])


def only(world, name, statuses, allowed):
    check(set(statuses) <= allowed,
          lambda: f"{name}: {statuses}\n{world.proxy.admin('conns', '--json')[1][:6000]}")


def black_hole(port):
    """A socket whose queue of connections is full: it answers no SYN."""
    sock = socket.socket()
    sock.bind((KERNEL, port))
    sock.listen(0)
    held = [sock]
    for _ in range(3):
        c = socket.socket()
        c.setblocking(False)
        c.connect_ex((KERNEL, port))
        held.append(c)
    return held


@case("a request's deadline of 500 ms holds whatever is slow, and the origin is told what is left",
      own=True)
def deadline(_):
    with fresh() as world:
        held = black_hole(HOLE)
        with Client(OURS, WEB) as first:
            first.send("GET /drip/60 HTTP/1.1\nHost: hold.test\n\n")
            first.head()
            for name, path, host in (("queue", "/size/1", "one.test"),
                                     ("silent origin", "/py/silent", "a"),
                                     ("trickling head", "/py/driphead/99", "a"),
                                     ("black hole", "/hole", "a")):
                statuses, times = timed(path, n=20, host=host)
                spread(name, times)
                only(world, name, statuses, {504})
                check(min(times) > 0.49, f"{name}: ended before its deadline: {min(times):.3f} s")
            # A wait that would end too late isn't begun.
            statuses, times = timed("/refused", n=20)
            spread("back-off", times)
            only(world, "back-off", statuses, {502, 504})
        with Client(OURS, WEB) as c:
            start = time.monotonic()
            a = c.send(get("/py/drip/100")).answer()
            spread("trickling body", [time.monotonic() - start])
            check(a.status == 200 and not a.whole and 0 < len(a.body) < 100, f"{a}")
        # The origin is told what is left, less when the client wants it sooner.
        left, sooner = told(""), told("X-Request-Timeout-Ms: 300\n")
        check(0 < left <= 500 and 0 < sooner <= 300, f"told {left} and {sooner} ms")
        print(f"# told the origin: {left} ms left; {sooner} of the client's 300")
        until(lambda: len([r for r in records(world, "/py/silent")
                           if (r["status"], r["reason"]) == (504, "request_timeout")]) == 20,
              5, "20 records of a passed deadline")
        for sock in held:
            sock.close()


class Stormy(origin.Listener):
    """Answers, or, while `bad`, fails with 503."""

    def __init__(self, port):
        self.bad, self.seen, self.lock = False, 0, threading.Lock()
        super().__init__(KERNEL, port, self.serve_one)

    def serve_one(self, conn):
        reader = origin.Reader(conn)
        while reader.until(b"\r\n\r\n") is not None:
            with self.lock:
                self.seen += 1
            status = b"503 Down" if self.bad else b"200 OK"
            conn.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")


def full_again(load, start, rate):
    """Seconds from `start` to the half second that has its full rate again; None: there is none,
    as when others have taken the machine. Told, not checked: tests/flow does that exactly."""
    got = load.between(start)
    for tenth in range(100):
        begin = start + tenth / 10
        some = [what for when, what, _ in got if begin <= when < begin + 0.5]
        if len(some) >= 0.45 * rate and set(some) == {200}:
            return tenth / 10
    return None


def storm(seconds):
    with fresh(cores="0") as world:
        stormy = world.origin(Stormy(STORM))
        with Load(8, get("/storm"), think=0.005) as load, Load(2, get("/"), think=0.005) as other:
            began = time.monotonic()
            time.sleep(2)
            bad_from, before = time.monotonic(), upstream(world, "storm")
            stormy.bad = True
            time.sleep(seconds)
            after, bad_to = upstream(world, "storm"), time.monotonic()
            stormy.bad = False
            until(lambda: set(load.answers(time.monotonic() - 0.5)) == {200}, 10,
                  "every request is answered again", pause=0.1)
            time.sleep(2)
        wait_quiet(world.proxy)
        calm, bad = load.answers(began, bad_from), load.answers(bad_from, bad_to)
        equal(set(calm), {200}, "answers while all is well")
        equal(set(other.answers()), {200}, "answers of the other upstream")
        spread("the other upstream, calm", other.times(began, bad_from))
        spread("the other upstream, in the storm", other.times(bad_from, bad_to))
        requests = numbers(after, "requests") - numbers(before, "requests")
        attempts = numbers(after, "attempts") - numbers(before, "attempts")
        rate = len(load.between(began + 1, bad_from)) / (bad_from - began - 1)
        took = full_again(load, bad_to, rate)
        print(f"# storm: {requests} requests, {attempts} attempts ({attempts / requests:.3f}), "
              f"answers {bad}; {rate:.0f} a second before; the full rate again after {took} s")
        check(requests > 20 and bad.get(503, 0) > 10, f"no storm: {requests} {bad}")
        check(attempts > requests, "nothing was tried again")
        # What the requests of the calm have earned weighs the more the shorter the storm.
        earned = 0.2 * (numbers(after, "requests") + 1) + 3 * (time.monotonic() - began + 1)
        check(attempts - requests <= earned, f"{attempts - requests} retries, {earned:.0f} earned")
        if seconds >= 10 and requests > 1000:
            check(attempts <= 1.25 * requests, f"{attempts} attempts for {requests} requests")
        # Now that all is quiet both have counted the same.
        equal(stormy.seen, number(world, "storm", "attempts"), "seen by the origin, and counted")


@case("an origin that fails every request gets no more retries than earned; all is well after it",
      own=True)
def storm_short(_):
    storm(3)


@case("an origin that fails every request for ten seconds gets at most a quarter more", long=True,
      own=True)
def storm_long(_):
    storm(10)


class Trio:
    """Three origins of which one at least is well."""

    def __init__(self, world, rng):
        self.world, self.rng = world, rng
        self.state = {port: "well" for port in THREE}
        self.running = {port: self.start(port) for port in THREE}

    def start(self, port):
        """It writes its answer in one piece: of half of one nobody could make a whole one."""
        folder = os.path.join(self.world.folder, f"nginx{port}")
        os.makedirs(folder, exist_ok=True)
        return Nginx(folder, KERNEL, port, os.path.join(folder, "root"), hello="three\\n")

    def move(self):
        port = self.rng.choice(THREE)
        was = self.state[port]
        if was == "killed":
            self.running[port] = self.start(port)
        elif was == "frozen":
            self.running[port].tell(signal.SIGCONT)
        elif list(self.state.values()).count("well") == 1:
            return
        if was != "well":
            self.state[port] = "well"
        elif self.rng.random() < 0.5:
            self.state[port] = "killed"
            self.running[port].kill()
        else:
            self.state[port] = "frozen"
            self.running[port].tell(signal.SIGSTOP)

    def end(self):
        for nginx in self.running.values():
            nginx.tell(signal.SIGCONT)
            nginx.end()


def kill(seconds):
    seed = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 30)
    print(f"# kill: SEED={seed}")
    with fresh() as world:
        trio = Trio(world, random.Random(seed))
        try:
            request = get("/?three", "three.test")
            equal(ask(OURS, WEB, request).body, b"three\n", "before anything happens")
            moves, end = 0, time.monotonic() + seconds
            with Load(16, request, think=0.005) as load:
                while time.monotonic() < end:
                    trio.move()
                    moves += 1
                    time.sleep(trio.rng.uniform(0.05, 0.5))
            after, answers = upstream(world, "three"), load.answers()
            spread(f"kill: {moves} moves, {numbers(after, 'retries')} retries", load.times())
            bad = [r for r in records(world, "/?three") if r["status"] != 200 or r["reason"] != "ok"]
            check(set(answers) == {200} and not bad, lambda: f"{answers} {bad[:5]}")
            check(numbers(after, "retries") > 0, "nothing failed: nothing was shown")
        finally:
            trio.end()


@case("of three origins killed, frozen and returned at random, no idempotent request sees anything",
      own=True)
def kill_short(_):
    kill(5)


@case("three origins killed, frozen and returned for a minute: no idempotent request sees anything",
      long=True, own=True, seconds=240)
def kill_long(_):
    kill(60)
