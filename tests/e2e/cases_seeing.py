"""What can be seen of a running instance, and how it tells systemd."""

import ctypes
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

from cases import case
from cases_life import Fresh
from origin import Listener
from origin import echo as origin_echo
from proc import BINARY, HERE, Folder, Millrace, check, equal, sh, until
from raw import Client, ask
from world import ECHO, KERNEL, L4ECHO, OURS, STRICT, WEB, write_config

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17
WALL = 0x40000000


class Systemd:
    """Its end of the notify socket, and an instance under it."""

    def __init__(self, folder, **values):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = os.path.join(folder, "notify")
        self.socket.bind(path)
        self.proxy = Millrace(write_config(folder, **values), folder, wait=0,
                              env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "10000000"})

    def hear(self, word, seconds):
        """The next message that has `word`; others are let go by."""
        end = time.monotonic() + seconds
        while True:
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                text = self.socket.recv(4096).decode()
            except (TimeoutError, socket.timeout):
                return None
            if word in text:
                return text

    def end(self):
        self.proxy.end(15)
        self.socket.close()


@case("systemd hears: ready, feeds, reloading, stopping; exit status 0", own=True, seconds=60)
def notify(_):
    with Folder() as folder:
        systemd = Systemd(folder)
        try:
            ready = systemd.hear("READY=1", 20)
            check(ready and "Serving with 1 core, configuration version 1" in ready, f"{ready}")
            check(f"MAINPID={systemd.proxy.pid}" in ready, "whose pid?")
            for _ in range(3):  # an idle core feeds, too
                check(systemd.hear("WATCHDOG=1", 2.5), "no feed")
            systemd.proxy.tell(signal.SIGHUP)
            check(systemd.hear("RELOADING=1", 5), "reloading is not told")
            check(systemd.hear("READY=1", 5), "the end of the reload is not told")
            systemd.proxy.tell(signal.SIGTERM)
            stopping = systemd.hear("STOPPING=1", 5)
            check(stopping and "EXTEND_TIMEOUT_USEC=" in stopping, f"{stopping}")
            status = systemd.proxy.wait(15)
            check(status == 0, lambda: f"exit status {status}\n{systemd.proxy.output()[-2000:]}")
        finally:
            systemd.end()


class HeldThread:
    """One thread of a program stands still, by ptrace; the others go on."""

    def __init__(self, pid, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.tid = next(int(t) for t in os.listdir(f"/proc/{pid}/task")
                        if self.name_of(pid, t) == name)
        equal(self.libc.ptrace(PTRACE_SEIZE, self.tid, None, None), 0, "seizing the thread")
        equal(self.libc.ptrace(PTRACE_INTERRUPT, self.tid, None, None), 0, "stopping the thread")
        os.waitpid(self.tid, WALL)

    @staticmethod
    def name_of(pid, tid):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="ascii") as f:
            return f.read().strip()

    def release(self):
        """Lets it go on; when it is dead, takes note of that, or its process would never end."""
        if self.libc.ptrace(PTRACE_DETACH, self.tid, None, None):
            os.waitpid(self.tid, WALL)


@case("one core that is held still: the feeding ends though control and the others are well",
      own=True, seconds=60)
def notify_stuck(_):
    with Folder() as folder:
        systemd, held = Systemd(folder, cores="0, 1"), None
        try:
            check(systemd.hear("READY=1", 20), "not ready")
            check(systemd.hear("WATCHDOG=1", 2.5), "no feed")
            held = HeldThread(systemd.proxy.pid, "core/1")
            # One more may be on its way: of a pass made before. Left alone, even idle cores would
            # feed again before Millrace itself notices and ends.
            since, fed = time.monotonic(), []
            while "stuck" not in systemd.proxy.output():
                check(time.monotonic() < since + 10, "the log doesn't say that a core is stuck")
                if systemd.hear("WATCHDOG=1", 0.1):
                    fed.append(time.monotonic() - since)
            check(not [t for t in fed if t > 0.7], f"fed though a core stands still: {fed}")
        finally:
            if held:
                held.release()
            status = systemd.proxy.wait(10)
            systemd.end()
        equal(status, -signal.SIGABRT, "exit status")


def health():
    code, out, _ = sh("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
                      "http://127.0.0.1:9901/healthz", ok=False)
    return out if code == 0 else None


@case("draining: 503 on /healthz, a head under way is served and is the last, idle ones get a FIN",
      own=True)
def drain_order(_):
    with Fresh() as world:
        with Client(OURS, WEB, timeout=5) as idle, Client(OURS, WEB, timeout=5) as begun, \
                Client(OURS, L4ECHO, timeout=5) as tunnel:
            equal(idle.send("GET /py/size/1 HTTP/1.1\nHost: a\n\n").answer().status, 200, "idle")
            equal(tunnel.send("x").take(1), b"x", "through the tunnel")
            begun.send("GET /py/size/5 HTTP/1.1\nHo")
            until(lambda: health() == "200", 2, "healthy")
            # The proxy must have the bytes before the signal: the next connection comes after them.
            with Client(OURS, WEB, timeout=5) as after:
                equal(after.send("GET /py/size/1 HTTP/1.1\nHost: a\n\n").answer().status, 200, "")
            world.proxy.tell(signal.SIGTERM)
            check(idle.is_closed(5) and idle.ended == "fin", f"the idle one: {idle.ended}")
            equal(health(), "503", "/healthz while draining")
            answer = begun.send("st: a\n\n").answer()
            equal((answer.status, answer.get("Connection")), (200, "close"), "the last answer")
            check(begun.is_closed(5) and begun.ended == "fin", f"after it: {begun.ended}")
            equal(tunnel.send("y").take(1), b"y", "the tunnel goes on")
            tunnel.close()
        equal(world.proxy.wait(5), 0, "exit status, long before drain.timeout")


@case("a second SIGTERM cuts what still runs; a drain that takes too long does so by itself",
      own=True)
def drain_cut(_):
    for second, timeout in ((True, "10s"), (False, "1s")):
        with Folder() as folder:
            config = write_config(folder)
            with open(config, encoding="utf-8") as f:
                text = f.read()
            with open(config, "w", encoding="utf-8") as f:
                f.write(text.replace("drain: { timeout: 10s }", f"drain: {{ timeout: {timeout} }}"))
            proxy = Millrace(config, folder)
            echo = Listener(KERNEL, ECHO, origin_echo)
            try:
                with Client(OURS, L4ECHO, timeout=5) as tunnel:
                    equal(tunnel.send("x").take(1), b"x", "through the tunnel")
                    start = time.monotonic()
                    proxy.tell(signal.SIGTERM)
                    until(lambda: health() != "200", 5, "draining")
                    if second:
                        proxy.tell(signal.SIGTERM)
                    check(tunnel.is_closed(5) and tunnel.ended == "rst", f"cut: {tunnel.ended}")
                    took = time.monotonic() - start
                    check(second or took > 0.9, f"cut after {took:.2f} s")
                equal(proxy.wait(5), 0, "exit status")
            finally:
                proxy.end(10)
                echo.stop()


def conns(proxy, *options):
    return json.loads(proxy.admin("conns", "--json", *options)[1])["connections"]


@case("conns: who is connected, since when, doing what; filters; wrong ones say what is right")
def connections(world):
    with Client(OURS, WEB) as idle, Client(OURS, WEB) as busy, Client(OURS, L4ECHO) as tunnel:
        equal(idle.send("GET /py/size/3 HTTP/1.1\nHost: a\n\n").answer().status, 200, "idle")
        equal(tunnel.send("xyz").take(3), b"xyz", "through the tunnel")
        busy.send("GET /py/drip/60?a=b HTTP/1.1\nHost: a\n\n")
        busy.head()
        by_port = {c["client"].rsplit(":", 1)[1]: c for c in conns(world.proxy)}
        at = {name: by_port[str(client.sock.getsockname()[1])]
              for name, client in (("idle", idle), ("busy", busy), ("tunnel", tunnel))}
        equal((at["idle"]["state"], at["idle"]["requests"], at["idle"]["request"]),
              ("idle", 1, None), "the idle one")
        equal(at["idle"]["local"], f"{OURS}:{WEB}", "our address")
        equal((at["busy"]["state"], at["busy"]["upstream"], at["busy"]["endpoint"]),
              ("relaying", "scripted", f"{KERNEL}:9001"), "the busy one")
        equal(at["busy"]["request"]["target"], "/py/drip/60?a=b", "its target")
        equal(at["busy"]["request"]["route"], "*/py", "its route")
        equal((at["tunnel"]["state"], at["tunnel"]["bytes_in"], at["tunnel"]["bytes_out"]),
              ("tunnel", 3, 3), "the tunnel")
        for c in at.values():
            check(c["tcp"]["state"] == "ESTABLISHED" and c["tcp"]["cwnd"] >= 14000, f"{c['tcp']}")
            check(0 <= c["idle_ms"] <= c["age_ms"] < 60000, f"{c}")
        equal({c["listener"] for c in conns(world.proxy, "--listener", "l4echo")}, {"l4echo"},
              "--listener")
        equal([c["state"] for c in conns(world.proxy, "--state", "relaying")], ["relaying"],
              "--state")
        equal(conns(world.proxy, "--client", "10.1.0.0/16"), [], "--client of others")
        check(len(conns(world.proxy, "--client", f"{KERNEL}/24")) >= 3, "--client")
        few = json.loads(world.proxy.admin("conns", "--json", "--limit", "2")[1])
        equal((len(few["connections"]), few["more"]), (2, True), "--limit 2")
        _, out, _ = world.proxy.admin("conns")
        check("GET a/py/drip/60?a=b" in out and "ESTABLISHED" in out, out)
        code, _, err = world.proxy.admin("conns", "--state", "sleepy", ok=False)
        check(code == 1 and "relaying" in err, f"{code} {err}")
        busy.take(60)


@case("conns under churn: pages never tear, and the proxy goes on", own=True)
def connections_churn(_):
    with Fresh() as world:
        held = [Client(OURS, WEB) for _ in range(100)]
        load = subprocess.Popen(["wrk", "-t", "1", "-c", "64", "-d", "3s", "-H",
                                 "Connection: close", world.url("/")],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            ports = {str(c.sock.getsockname()[1]) for c in held}
            walks = 0
            while load.poll() is None:
                seen = [c["client"].rsplit(":", 1)[1] for c in conns(world.proxy)]
                equal(sum(p in ports for p in seen), 100, "of those that stay, each once")
                equal(len({p for p in seen if p in ports}), 100, "no one twice")
                walks += 1
            check(walks > 2, f"only {walks} walks")
        finally:
            load.kill()
            load.wait()
            for c in held:
                c.close()
        world.still_serves()


@case("top --once and --json: rates of the interval, not since the start")
def top_once(world):
    def frame():
        return json.loads(world.proxy.admin("top", "--once", "--json", "--interval", "500ms")[1])
    stop = threading.Event()

    def load():
        while not stop.is_set():
            ask(OURS, WEB, "GET /py/size/1 HTTP/1.1\nHost: a\n\n")
    thread = threading.Thread(target=load)
    thread.start()
    try:
        busy = frame()
    finally:
        stop.set()
        thread.join()
    until(lambda: frame()["listeners"][0]["requests_per_s"] == 0, 5, "no requests, no rate")
    quiet = frame()
    web = {u["name"]: u for u in busy["upstreams"]}["scripted"]
    check(web["requests_per_s"] > 5 and web["amplification"] == 1, f"{web}")
    check(busy["listeners"][0]["requests_per_s"] > 5, f"{busy['listeners'][0]}")
    check(0 < busy["cores"][0]["busy"] <= 1 and busy["cores"][0]["poll_p99_ns"] > 0, f"{busy}")
    check(450 <= busy["interval_ms"] < 10000 and not busy["since_start"], f"{busy}")
    check(quiet["cores"][0]["busy"] < busy["cores"][0]["busy"], "a quiet core is less busy")
    _, out, _ = world.proxy.admin("top", "--interval", "200ms")  # no terminal: one frame
    check(all(w in out for w in ("CORE", "LISTENER", "UPSTREAM", "scripted")), out)
    check("\x1b" not in out, "escape codes without a terminal")


class Pty:
    """A program on a terminal of 80 by 24."""

    def __init__(self, *command):
        self.master, self.slave = pty.openpty()
        self.resize(80, 24)
        self.before = termios.tcgetattr(self.slave)
        self.text = ""
        self.popen = subprocess.Popen(command, stdin=self.slave, stdout=self.slave,
                                      stderr=self.slave, start_new_session=True,
                                      preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, cols, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        return self.text

    def screens(self):
        """Each whole frame, as lines without codes."""
        frames = self.read().split("\x1b[H")[1:]
        plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", f).replace("\r", "")
                 for f in frames if "\x1b[J" in f]
        return [f.split("\n") for f in plain]

    def end(self):
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        os.close(self.master)
        os.close(self.slave)

    def check_restored(self, how):
        text = self.read()
        check(text.endswith("\x1b[?25h\x1b[?1049l"), f"{how}: the screen is not given back")
        equal(termios.tcgetattr(self.slave), self.before, f"{how}: the terminal's settings")


@case("top on a terminal: fits, follows a resize, and gives the terminal back by q and by signals")
def top_live(world):
    command = (BINARY, "top", "--socket", world.proxy.socket, "--interval", "200ms")
    for how in ("q", signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        t = Pty(*command)
        try:
            until(lambda: len(t.screens()) > 2, 10, "frames")
            equal(len(t.screens()[-1]), 24, "rows")
            long = [line for line in t.screens()[-1] if len(line) > 80]
            check(not long, f"over 80 columns: {long}")
            check("q ends" in t.screens()[-1][-1], f"{t.screens()[-1]}")
            t.resize(132, 50)
            until(lambda: len(t.screens()[-1]) == 50, 5, "the new size")
            if how == "q":
                os.write(t.master, b"q")
                equal(t.popen.wait(5), 0, "exit status")
            else:
                t.popen.send_signal(how)
                equal(t.popen.wait(5), -how, "ended by")
            t.check_restored(str(how))
        finally:
            t.end()


@case("top outlives a restart of what it looks at", own=True)
def top_restart(_):
    with Fresh() as world:
        t = Pty(BINARY, "top", "--socket", world.proxy.socket, "--interval", "200ms")
        try:
            until(lambda: len(t.screens()) > 1, 10, "frames")
            world.proxy.end()
            until(lambda: "trying again" in t.screens()[-1][-1]
                  or "is ending" in t.screens()[-1][-1], 10, "it says so")
            world.proxy = Millrace(world.config, world.folder)
            until(lambda: "q ends, space" in t.screens()[-1][-1]
                  and f"pid {world.proxy.pid}" in t.screens()[-1][0], 10, "the new one")
            os.write(t.master, b"q")
            equal(t.popen.wait(5), 0, "exit status")
            t.check_restored("q")
        finally:
            t.end()


def page(name):
    with open(os.path.join(HERE, "../../docs", name), encoding="utf-8") as f:
        return f.read()


def codes(text, title):
    """The codes of a section's table."""
    return set(re.findall(r"^\| `(\w+)` \|", text.split(f"## {title}\n")[1].split("\n## ")[0], re.M))


@case("every metric of a running instance is in docs/metrics.md, and the other way round; so are "
      "the access log's fields and reasons")
def documented(world):
    ask(OURS, WEB, "GET /py/size/1 HTTP/1.1\nHost: a\n\n")
    ask(OURS, STRICT, "GET /nobody HTTP/1.1\n\n")
    _, text, _ = sh("curl", "-s", "http://127.0.0.1:9901/metrics")
    emitted = dict(re.findall(r"^# TYPE (millrace_\w+) (\w+)$", text, re.M))
    told = dict(re.findall(r"^\| `(millrace_\w+)` \| (\w+) \|", page("metrics.md"), re.M))
    equal(sorted(emitted.items()), sorted(told.items()), "metrics and their types")
    labels = {m[0]: m[1] for m in re.findall(r"^\| `(millrace_\w+)` \| \w+ \| (.*?) \|",
                                             page("metrics.md"), re.M)}
    for name, inside in re.findall(r"^(millrace_\w+)\{(.*)\} ", text, re.M):
        family = name if name in labels else re.sub(r"_(bucket|sum|count)$", "", name)
        got = [x for x in re.findall(r'(\w+)="', inside) if x != "le"]
        equal(got, re.findall(r"`(\w+)`", labels[family]), f"labels of {family}")
    reasons = page("reasons.md")
    for title, metric in (("How the network layer lets go of a packet", "net_packets"),
                          ("How TCP lets go of a segment", "tcp_segments")):
        equal(set(re.findall(rf'millrace_{metric}_total\{{.*reason="(\w+)"', text)),
              codes(reasons, title), title)

    def records():
        with open(os.path.join(world.folder, "access.log"), encoding="ascii") as f:
            return [json.loads(line) for line in f]
    until(lambda: any(r["listener"] == "strict" for r in records()), 5, "the record")
    for record in records():
        check(set(record) <= codes(reasons, "The access log"), f"fields: {record}")
        check(record["reason"] in codes(reasons, "How a request ends"), f"reason: {record}")
        check(record.get("http_error", "no_host") in codes(reasons, "What is wrong with a message"),
              f"http_error: {record}")
    check(any(r.get("http_error") == "no_host" for r in records()), "a request without Host")


@case("the manual has every verb", own=True)
def manual(_):
    with open(os.path.join(HERE, "../../docs/millrace.8"), encoding="utf-8") as f:
        page = f.read()
    _, out, _ = sh(BINARY, "help")
    verbs = re.findall(r"^  ([a-z]+) ", out, re.M)
    check(len(verbs) > 8, f"{verbs}")
    for verb in verbs:
        check(re.search(rf"^\.B[IR]? {verb}\b|, \" {verb}$", page, re.M), f"{verb} is not in it")
