"""Starting, stopping, failing and coming back."""

import json
import os
import re
import signal
import threading
import time

import origin
from cases import case
from proc import BINARY, Folder, Millrace, Nginx, check, equal, numbers, sh, until
from raw import Client, ask
from world import KERNEL, L4, NGINX, OURS, WEB, World, wait_quiet, write_config

MIB = 1 << 20


class Fresh:
    """A scene of the case's own, taken down whatever happens."""

    def __init__(self, **values):
        self.folder, self.values, self.world = Folder(), values, None

    def __enter__(self):
        self.world = World(self.folder.__enter__(), **self.values)
        return self.world

    def __exit__(self, kind, *_):
        try:
            status = self.world.end()
            if kind is None:
                equal(status, 0, "exit status after SIGTERM")
        finally:
            self.folder.__exit__()


def status_of(path, port=WEB, timeout=5):
    try:
        return ask(OURS, port, f"GET {path} HTTP/1.1\nHost: a\n\n", timeout=timeout).status
    except Exception as e:  # pylint: disable=broad-except
        return str(e)


@case("the origin dies mid-transfer: a visible cut, 502 to new ones, back within a second", own=True)
def origin_dies(_):
    with Fresh() as world:
        name, _ = world.file(256 * MIB)
        with Client(OURS, WEB, timeout=10, rcvbuf=65536) as c, \
                Client(OURS, L4, timeout=10, rcvbuf=65536) as t:
            for client in (c, t):
                client.send(f"GET /{name} HTTP/1.1\nHost: a\n\n")
                client.head()
                client.take(MIB)
            world.nginx.kill()
            for client in (c, t):
                got = MIB
                while client.more():
                    got += len(client.data)
                    client.data = b""
                check(client.ended in ("fin", "rst"), f"the transfer hangs: {client.ended}")
                check(got < 256 * MIB, "a whole body from a dead origin")
        equal(status_of("/"), 502, "to new requests")
        world.nginx = Nginx(world.folder, KERNEL, NGINX, world.files)
        start = time.monotonic()
        until(lambda: status_of("/") == 200, 5, "recovery")
        took = time.monotonic() - start
        check(took < 1.0, f"recovery took {took:.2f} s")
        wait_quiet(world.proxy)


@case("the origin's machine goes silent mid-transfer: ended by the deadline, not hung", own=True)
def origin_silent(_):
    with Fresh() as world:
        with Client(OURS, WEB, timeout=10) as c:
            a = c.send("GET /impatient/hang HTTP/1.1\nHost: a\n\n").answer()
            check(not a.whole, "half a body taken for a whole one")


@case("SIGTERM drains: running transfers end whole, new connections don't start, exit status 0",
      own=True)
def drain(_):
    with Fresh() as world:
        with Client(OURS, WEB, timeout=20) as busy, Client(OURS, WEB, timeout=20) as idle:
            idle.send("GET /py/size/1 HTTP/1.1\nHost: a\n\n").answer()
            busy.send("GET /py/drip/40 HTTP/1.1\nHost: a\n\n")
            busy.head()
            world.proxy.tell(signal.SIGTERM)
            until(lambda: status_of("/", timeout=1) != 200, 5, "new work refused")
            check(idle.is_closed(5), "an idle connection stays open while draining")
            equal(busy.take(40), origin.pattern(40), "the running transfer's body")
        equal(world.proxy.wait(15), 0, "exit status")


@case("millrace drain does what SIGTERM does", own=True)
def drain_verb(_):
    with Fresh() as world:
        world.proxy.admin("drain")
        equal(world.proxy.wait(15), 0, "exit status")


@case("kill -9 and a restart, three times, without cleaning by hand", own=True, seconds=120)
def kill9(_):
    with Fresh() as world:
        for _ in range(3):
            check(status_of("/") == 200, "serves")
            world.proxy.end(5, signal.SIGKILL)
            world.proxy = Millrace(world.config, world.folder)
            # The kernel's end is a new one: the origins' addresses are back on it.
            until(lambda: status_of("/") == 200, 5, "serves after the restart")


@case("kill -9 under load, ten times", long=True, own=True, seconds=240)
def kill_storm(_):
    with Fresh() as world:
        stop = threading.Event()

        def load():
            while not stop.is_set():
                status_of("/", timeout=1)
        threads = [threading.Thread(target=load) for _ in range(8)]
        for t in threads:
            t.start()
        try:
            for _ in range(10):
                until(lambda: status_of("/") == 200, 10, "serves")
                world.proxy.end(5, signal.SIGKILL)
                world.proxy = Millrace(world.config, world.folder)
        finally:
            stop.set()
            for t in threads:
                t.join()
        until(lambda: status_of("/") == 200, 10, "serves at the end")


@case("the origin is killed and brought back ten times under load", long=True, own=True, seconds=240)
def origin_storm(_):
    with Fresh() as world:
        stop, odd = threading.Event(), []

        def load():
            while not stop.is_set():
                got = status_of("/", timeout=10)
                if got not in (200, 502, 504) and not str(got).startswith("no line"):
                    odd.append(got)
        threads = [threading.Thread(target=load) for _ in range(8)]
        for t in threads:
            t.start()
        try:
            for _ in range(10):
                until(lambda: status_of("/") == 200, 5, "serves")
                world.nginx.kill()
                until(lambda: status_of("/") == 502, 5, "502 without an origin")
                world.nginx = Nginx(world.folder, KERNEL, NGINX, world.files)
        finally:
            stop.set()
            for t in threads:
                t.join()
        check(not odd, f"clients saw {odd[:5]}")
        wait_quiet(world.proxy)


@case("what can't start says why in one clear line and exits with 1", own=True)
def refusals(_):
    with Fresh() as world, Folder() as other:
        # The same admin socket, another device.
        second = write_config(world.folder, "second.yaml", device="mre2e1", ours="10.79.0.1",
                              kernel="10.79.0.2")
        # The same metrics address, another admin socket.
        third = write_config(other, "third.yaml")
        # The same device, all else of its own.
        fourth = os.path.join(other, "fourth.yaml")
        with open(third, encoding="utf-8") as f:
            text = f.read()
        with open(fourth, "w", encoding="utf-8") as f:
            f.write(text.replace("127.0.0.1:9901", "127.0.0.1:9902"))
        for config, word in ((second, "admin.sock"), (third, "127.0.0.1:9901"),
                             (fourth, "mre2e0")):
            code, out, err = sh(BINARY, "run", "--config", config, ok=False, timeout=30)
            equal(code, 1, f"exit status with {config}")
            check(word in out + err, f"no word of {word}: {out}{err}")
        world.still_serves()
        bad = os.path.join(other, "bad.yaml")
        with open(bad, "w", encoding="utf-8") as f:
            f.write("version: 1\nlistner: []\n")
        code, out, err = sh(BINARY, "run", "--config", bad, ok=False, timeout=30)
        equal(code, 1, "exit status with a bad file")
        check("listner" in out + err and "listeners" in out + err, f"{out}{err}")
        code, out, err = sh(BINARY, "run", "--config", other + "/none", ok=False, timeout=30)
        equal(code, 1, "exit status without a file")


@case("check, schema and version answer without a port; wrong usage is status 2", own=True)
def verbs(_):
    with Folder() as folder:
        config = write_config(folder)
        equal(sh(BINARY, "check", "--config", config)[0], 0, "check")
        check(json.loads(sh(BINARY, "schema")[1]).get("$schema"), "schema is a JSON Schema")
        check(re.search(r"\d+\.\d+", sh(BINARY, "version")[1]), "version")
        equal(sh(BINARY, "frobnicate", ok=False)[0], 2, "status of wrong usage")
        with open(config, "a", encoding="utf-8") as f:
            f.write("nonsense: 1\nlog: 3\n")
        code, out, err = sh(BINARY, "check", "--config", config, ok=False)
        equal(code, 1, "check of a bad file")
        check(re.search(r"millrace\.yaml:\d+:\d+: ", out + err), f"{out}{err}")


def version_of(proxy):
    return min(core["loop"]["snapshot_version"] for core in proxy.status()["cores"])


@case("a reload changes the routes of live connections and touches none", own=True, seconds=60)
def reload(_):
    with Fresh() as world:
        with Client(OURS, WEB, timeout=20) as held, Client(OURS, WEB, timeout=30) as running:
            equal(held.send("GET /moved HTTP/1.1\nHost: a\n\n").answer().status, 404, "before")
            running.send("GET /py/drip/60 HTTP/1.1\nHost: a\n\n")
            running.head()
            with open(world.config, encoding="utf-8") as f:
                text = f.read()
            route = "      routes:\n        - match: { host: \"exact.test\", path_prefix: / }\n"
            check(route in text, "the template has changed")
            added = ("      routes:\n        - match: { host: \"*\", path_prefix: /moved }\n"
                     "          upstream: scripted\n")
            with open(world.config + ".new", "w", encoding="utf-8") as f:
                f.write(text.replace(route, added + route[len("      routes:\n"):], 1))
            os.rename(world.config + ".new", world.config)
            # The file's change is enough; no word from us.
            until(lambda: held.send("GET /moved HTTP/1.1\nHost: a\n\n").answer().status == 200, 5,
                  "the new route on the old connection", pause=0.05)
            equal(running.take(60), origin.pattern(60), "a transfer across the reload")


@case("a bad file keeps the old configuration and says what is wrong", own=True)
def reload_bad(_):
    with Fresh() as world:
        with open(world.config, encoding="utf-8") as f:
            good = f.read()
        with open(world.config, "a", encoding="utf-8") as f:
            f.write("nonsense: 1\n")
        code, out, err = world.proxy.admin("reload", ok=False)
        equal(code, 1, "status of reload with a bad file")
        check("nonsense" in out + err, f"{out}{err}")
        world.still_serves()
        with open(world.config, "w", encoding="utf-8") as f:
            f.write(good)
        world.proxy.tell(signal.SIGHUP)
        equal(world.proxy.admin("reload")[0], 0, "reload of the good file")
        world.still_serves()


@case("reloads under load: a hundred, no request fails", own=True, seconds=90)
def reload_storm(_):
    with Fresh() as world:
        stop, bad = threading.Event(), []

        def load():
            while not stop.is_set():
                got = status_of("/")
                if got != 200:
                    bad.append(got)
        threads = [threading.Thread(target=load) for _ in range(4)]
        for t in threads:
            t.start()
        try:
            with open(world.config, encoding="utf-8") as f:
                text = f.read()
            for i in range(100):
                with open(world.config + ".new", "w", encoding="utf-8") as f:
                    f.write(text.replace("request: 300s", f"request: {200 + i}s"))
                os.rename(world.config + ".new", world.config)
                world.proxy.admin("reload")
        finally:
            stop.set()
            for t in threads:
                t.join()
        check(not bad, f"{len(bad)} requests failed: {bad[:5]}")
        check(version_of(world.proxy) > 50, "snapshots did not move")
        wait_quiet(world.proxy)


@case("nothing is left over in the end: no connection, task, timer or mbuf", own=True)
def left_over(_):
    with Fresh() as world:
        start = wait_quiet(world.proxy)
        ask(OURS, WEB, "GET /py/echo HTTP/1.1\nHost: a\n\n")
        sh("wrk", "-t", "1", "-c", "32", "-d", "2s", world.url("/"))
        quiet = {}

        # Pooled connections go by their idle timeout, TIME_WAIT by its own.
        def settled():
            quiet["now"] = now = wait_quiet(world.proxy)
            return (numbers(now, "live") <= numbers(start, "live")
                    and numbers(now, "rope_nodes") == numbers(start, "rope_nodes"))
        until(settled, 20, "tasks and ropes back to where they were", pause=0.2)


@case("the embedded port and the socket go when Millrace goes", own=True)
def tidy(_):
    with Folder() as folder:
        proxy = Millrace(write_config(folder), folder)
        check(os.path.exists("/sys/class/net/mre2e0"), "no port while it runs")
        equal(proxy.end(15, signal.SIGINT), 0, "exit status after SIGINT")
        check(not os.path.exists("/sys/class/net/mre2e0"), "the port is still there")
        check(not os.path.exists(proxy.socket), "the admin socket is still there")

