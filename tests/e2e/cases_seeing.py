"""What can be seen of a running instance, and how it tells systemd."""

import ctypes
import os
import re
import signal
import socket
import time

from cases import case
from cases_life import Fresh
from origin import Listener
from origin import echo as origin_echo
from proc import BINARY, HERE, Folder, Millrace, check, equal, sh, until
from raw import Client
from world import ECHO, KERNEL, L4ECHO, OURS, WEB, write_config

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
            # One more may be on its way: of a pass made before.
            systemd.hear("WATCHDOG=1", 0.6)
            check(systemd.hear("WATCHDOG=1", 1.2) is None, "fed though a core stands still")
            until(lambda: "stuck" in systemd.proxy.output(), 10, "the log says so")
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


@case("the manual has every verb", own=True)
def manual(_):
    with open(os.path.join(HERE, "../../docs/millrace.8"), encoding="utf-8") as f:
        page = f.read()
    _, out, _ = sh(BINARY, "help")
    verbs = re.findall(r"^  ([a-z]+) ", out, re.M)
    check(len(verbs) > 8, f"{verbs}")
    for verb in verbs:
        check(re.search(rf"^\.B[IR]? {verb}\b|, \" {verb}$", page, re.M), f"{verb} is not in it")
