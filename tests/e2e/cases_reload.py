"""Configurations that change while it serves, by whatever way and in whatever state."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time

import origin
from cases import case
from cases_life import Fresh, status_of
from proc import BINARY, check, equal, sh, until
from raw import Client
from world import KERNEL, L4ECHO, OURS, WEB, wait_quiet

EXTRA = 8090
MIB = 1 << 20


class Admin:
    """The admin socket, spoken to by hand."""

    def __init__(self, path, timeout=10):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.data = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def receive(self):
        while b"\n" not in self.data:
            piece = self.sock.recv(1 << 16)
            if not piece:
                return None
            self.data += piece
        line, _, self.data = self.data.partition(b"\n")
        return json.loads(line)

    def ask(self, verb, **arguments):
        self.sock.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
        return self.receive()


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def put(path, text):
    """As an editor does: whole, by a rename."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)


def with_listener(text, port=EXTRA, upstream="scripted", name="extra"):
    return text.replace("upstreams:\n", f"  - name: {name}\n    address: {OURS}:{port}\n    http:\n"
                        f"      routes: [{{ upstream: {upstream} }}]\nupstreams:\n", 1)


def version_of(proxy):
    return proxy.status()["config"]["version"]


def running(proxy):
    """The running version, after every core has taken it."""
    now = proxy.status()
    cores = {core["loop"]["snapshot_version"] for core in now["cores"]}
    equal(cores, {now["config"]["version"]}, "versions of the cores")
    return now["config"]["version"]


@case("reload tells what it changed and as which version, and refuses what came too late", own=True)
def reload_tells(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        equal(running(proxy), 1, "version at the start")
        other = os.path.join(world.folder, "other.yaml")
        put(other, text.replace("request: 1s, idle: 3s", "request: 2s, idle: 3s"))
        _, out, _ = proxy.admin("diff", "--config", other)
        equal(out, "upstreams[impatient].timeouts.request: 1s -> 2s\n", "diff against what runs")
        # By hand, so as to be faster than the watch.
        with Admin(proxy.socket) as admin:
            shutil.copy(other, world.config)
            answer = admin.ask("reload", if_version=1)
        check(answer["ok"] and answer["result"]["acknowledged"], f"{answer}")
        equal(answer["result"]["changes"],
              [{"key": "upstreams[impatient].timeouts.request", "from": "1s", "to": "2s",
                "live": True}], "changes")
        equal(running(proxy), 2, "version after it, on every core, at once")
        code, out, err = proxy.admin("reload", "--if-version", "1", ok=False)
        equal((code, err), (1, "millrace: refused: version has moved on: 1 was expected, 2 runs\n"),
              "reload for another version")
        _, out, _ = proxy.admin("reload", "--json")
        answer = json.loads(out)
        equal((answer["changed"], answer["version"], answer["acknowledged"]), (False, 2, True),
              "nothing to do")
        put(world.config, text.replace("cores: [1]", "cores: [0]").replace("idle: 3s", "idle: 4s"))
        until(lambda: running(proxy) == 3, 10, "the watch sees the file")
        _, out, _ = proxy.admin("reload")
        equal(out, "nothing to change at once; version 3 goes on\nneeds a restart, the old value "
                   "stays until then:\n  runtime.cores: [1] -> [0]\n", "what waits for a restart")
        equal(sh(BINARY, "diff", "--config", world.config)[1],
              "runtime.cores: [1] -> [0] (needs a restart, the old value stays)\n", "what is left")
        put(other, text)
        _, out, _ = sh(BINARY, "diff", "--json", other, world.config)
        check({c["key"] for c in json.loads(out)["changes"]} > {"runtime.cores"}, out)


@case("explain says what a key means, what runs, and which line it is from", own=True)
def explains(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        line = text[:text.index("request: 1s")].count("\n") + 1
        _, out, _ = sh(BINARY, "explain", "upstreams[].timeouts.request", "--config", world.config)
        check("duration, 1ms to 24h; default 15s; live" in out, out)
        check(re.search(rf"upstreams\[impatient\]\.timeouts\.request: 1s  \(.*:{line}:\d+\)", out),
              out)
        check("upstreams[echo].timeouts.request: 15s  (default)" in out, out)
        _, out, _ = sh(BINARY, "explain", "runtime", "--json")
        check(len(json.loads(out)["keys"]) > 3, out)
        code, _, err = sh(BINARY, "explain", "upstream.timeouts", ok=False)
        equal((code, err), (1, 'millrace: there is no key "upstream" (did you mean "upstreams"?)\n'),
              "a key that isn't")
        _, out, _ = proxy.admin("config")
        put(world.config + ".running", out)
        equal(sh(BINARY, "diff", world.config, world.config + ".running")[1], "no difference\n",
              "the file against what runs, written out")


@case("rollback goes back to what ran before, and to any version that is kept", own=True)
def rollback(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        for version, seconds in ((2, 5), (3, 6)):
            put(world.config, text.replace("connect: 500ms", f"connect: {seconds}s"))
            proxy.admin("reload")
            equal(running(proxy), version, "version")
        _, out, _ = proxy.admin("rollback")
        check(out.startswith("back to the configuration of version 2; version 4 is published\n"),
              out)
        check("upstreams[dead].timeouts.connect: 6s -> 5s" in out, out)
        proxy.admin("rollback", "1")
        check("connect: 500ms" in proxy.admin("config")[1], "version 1 is in force again")
        _, out, _ = proxy.admin("rollback", "--list", "--json")
        equal([(e["version"], e.get("repeats")) for e in json.loads(out)],
              [(1, None), (2, None), (3, None), (4, 2), (5, 1)], "versions")
        code, _, err = proxy.admin("rollback", "77", ok=False)
        check(code == 1 and "version 77 isn't kept; there are 1 to 5" in err, err)
        equal(proxy.admin("rollback", "x", ok=False)[0], 2, "status of wrong usage")
        # The file hasn't changed, so it stays that way until somebody reloads it.
        world.still_serves()
        equal(running(proxy), 5, "version")


@case("listeners come and go while it serves; what they carry is finished", own=True)
def listeners_live(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        check(status_of("/py/echo", EXTRA, 1) != 200, "it is there already")
        put(world.config, with_listener(text))
        proxy.admin("reload")
        equal(status_of("/py/echo", EXTRA), 200, "a new listener")
        with Client(OURS, EXTRA, timeout=20) as idle, Client(OURS, EXTRA, timeout=20) as busy, \
                Client(OURS, L4ECHO, timeout=20) as tunnel:
            idle.send("GET /py/size/1 HTTP/1.1\nHost: a\n\n").answer()
            busy.send("GET /drip/30 HTTP/1.1\nHost: a\n\n")
            busy.head()
            tunnel.send("before")
            equal(tunnel.take(6), b"before", "the tunnel")
            # The new one goes again, and so does the tunnel's.
            gone = re.sub(r"  - name: l4echo\n.*\n.*\n", "", text)
            check(gone != text, "the template has changed")
            put(world.config, gone)
            proxy.admin("reload")
            equal(idle.is_closed(5), "fin", "an idle connection")
            check(status_of("/py/echo", EXTRA, 1) != 200, "it still takes connections")
            equal(busy.take(30), origin.pattern(30), "a transfer on a listener that is gone")
            equal(busy.is_closed(5), "fin", "after it")
            tunnel.send("after")
            equal(tunnel.take(5), b"after", "a tunnel on a listener that is gone")
            drains = [(x["name"], x["connections"]) for x in proxy.status()["listeners"]
                      if x["draining"]]
            check(("l4echo", 1) in drains, f"{drains}")
        until(lambda: not any(x["draining"] for x in proxy.status()["listeners"]), 10,
              "nothing drains any more", pause=0.1)
        equal(proxy.status()["config"]["listeners_draining"], 0, "listeners that drain")
        wait_quiet(proxy)


@case("whatever stands in the file's place: the old configuration stays, the error is exact",
      own=True, seconds=120)
def bad_sources(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        bomb = "version: 1\na: &a [x, x]\n" + "".join(
            f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi"))
        bad = {
            "": ": expected a configuration, found nothing",
            "version: 1\nlistener: []\n": 'listener: unknown key (did you mean "listeners"?)',
            text[:len(text) // 2]: None,
            bomb: "YAML anchors are not supported: write the value out",
            "#" * (10 * MIB): ": a configuration has at most 1MiB",
            "[" * 100000: None,
            "\0" * 1000: None,
        }
        for content, error in bad.items():
            put(world.config, content)
            code, out, err = proxy.admin("reload", ok=False)
            equal(code, 1, f"status with {content[:20]!r}: {out}{err}")
            check(err.count("\n") >= 2 and world.config in err, err)
            if error and error in err:
                continue
            check(not error or content == "", f"{content[:20]!r}: {err[:500]}")
        os.remove(world.config)
        for make, error in ((lambda: None, "can't be read: No such file or directory"),
                            (lambda: os.mkdir(world.config), "expected a file, this is a directory"),
                            (lambda: os.mkfifo(world.config), "expected a regular file")):
            make()
            code, _, err = proxy.admin("reload", ok=False)
            check(code == 1 and error in err, err)
            if os.path.isdir(world.config):
                os.rmdir(world.config)
        os.remove(world.config)
        world.still_serves()
        equal(running(proxy), 1, "version")
        put(world.config, text)
        proxy.admin("reload")
        equal(running(proxy), 1, "version, back where it began")


@case("a symbolic link that is switched, as Kubernetes does, is a change", own=True)
def symlinks(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        folder = world.folder
        for name, value in (("..one", "301s"), ("..two", "302s"), ("..three", "30x")):
            os.mkdir(os.path.join(folder, name))
            put(os.path.join(folder, name, "millrace.yaml"),
                text.replace("request: 300s", f"request: {value}"))

        def switch(name):
            os.symlink(name, os.path.join(folder, "..new"))
            os.rename(os.path.join(folder, "..new"), os.path.join(folder, "..data"))
        switch("..one")
        os.symlink("..data/millrace.yaml", world.config + ".new")
        os.rename(world.config + ".new", world.config)
        until(lambda: "request: 301s" in proxy.admin("config")[1], 10, "the first link", 0.1)
        switch("..two")
        shutil.rmtree(os.path.join(folder, "..one"))
        until(lambda: "request: 302s" in proxy.admin("config")[1], 10, "the switched link", 0.1)
        switch("..three")
        until(lambda: not proxy.status()["config"]["last_reload_ok"], 10, "a bad one behind it", 0.1)
        check("request: 302s" in proxy.admin("config")[1], "the last good one stays")
        world.still_serves()


@case("the admin socket's worst clients keep neither the operator nor the traffic waiting", own=True,
      seconds=120)
def worst_admin_clients(_):
    with Fresh() as world:
        path, proxy = world.proxy.socket, world.proxy
        # A gigabyte without a newline.
        with Admin(path) as big:
            piece, sent = b"[" * MIB, 0
            try:
                while sent < 1 << 30:
                    big.sock.sendall(piece)
                    sent += len(piece)
            except OSError:
                pass
            check(sent < 64 * MIB, f"{sent} bytes of a request were taken")
        # Thousands that say nothing, or half a word, all at once.
        hung, stop, waited = [], threading.Event(), []

        def serve():
            while not stop.is_set():
                start = time.monotonic()
                got = status_of("/")
                waited.append((time.monotonic() - start, got))
        traffic = threading.Thread(target=serve)
        traffic.start()
        try:
            for i in range(3000):
                s = socket.socket(socket.AF_UNIX)
                s.settimeout(5)
                try:
                    s.connect(path)
                    if i % 2:
                        s.sendall(b'{"verb"')
                except OSError:
                    pass
                hung.append(s)
                if len(hung) > 500:
                    hung.pop(0).close()
            until(lambda: proxy.admin("status", "--json", ok=False)[0] == 0, 10,
                  "an answer to the operator", pause=0.1)
            equal(proxy.admin("reload")[0], 0, "reload beside five hundred hung clients")
        finally:
            stop.set()
            traffic.join()
            for s in hung:
                s.close()
        check(all(got == 200 for _, got in waited), f"{[w for w in waited if w[1] != 200][:5]}")
        check(len(waited) > 10, "no traffic in the meantime")
        # One who asks and never reads.
        deaf = Admin(path)
        for _ in range(2000):
            try:
                deaf.sock.sendall(b'{"verb":"status"}\n')
            except OSError:
                break
        equal(proxy.admin("status", "--json")[0], 0, "status beside a deaf client")
        deaf.sock.close()
        world.still_serves()


def rss(pid):
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Held:
    """A connection that sends a little now and then and checks what comes back."""

    def __init__(self, port, upload):
        self.client, self.upload, self.sent, self.wrong = Client(OURS, port, 30), upload, 0, None
        if upload:
            self.client.send(f"PUT /py/hash HTTP/1.1\nHost: a\nContent-Length: {64 * MIB}\n\n")

    def step(self):
        piece = origin.pattern(4096)
        try:
            self.client.send(piece)
            self.sent += len(piece)
            if not self.upload and self.client.take(len(piece)) != piece:
                self.wrong = f"cut after {self.sent} bytes: {self.client.ended}"
        except OSError as e:
            self.wrong = f"{e} after {self.sent} bytes"

    def finish(self):
        if self.upload and not self.wrong:
            piece = origin.pattern(MIB)
            left = 64 * MIB - self.sent
            while left:
                self.client.send(piece[:left])
                left -= len(piece[:left])
            answer = self.client.answer("PUT")
            if answer.status != 200:
                self.wrong = f"the upload ended with {answer}"
        self.client.close()


def storm(seconds, reloads):
    """Valid and broken ones in turn, under wrk, open tunnels and uploads."""
    with Fresh(cores="0, 1", queues="2") as world:
        text, proxy = read(world.config), world.proxy
        good = [text.replace("request: 300s", "request: 200s"), with_listener(text),
                with_listener(text, upstream="app"), text,
                text.replace("upstreams:\n", f"upstreams:\n  - name: new\n    endpoints: [{KERNEL}:1]"
                             "\n", 1)]
        bad = [text[:len(text) // 3], "", text + "nonsense: 1\n", text.replace("9000", "900000")]
        held = [Held(L4ECHO, False) for _ in range(4)] + [Held(WEB, True) for _ in range(2)]
        wrk = subprocess.Popen(["wrk", "-t", "1", "-c", "32", "-d", f"{seconds}s", world.url("/")],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        versions, before, counts, start = [0, 0], 0, {True: 0, False: 0}, time.monotonic()
        with Admin(proxy.socket, timeout=30) as admin:
            for i in range(reloads):
                pause = start + i * seconds / reloads - time.monotonic()
                if pause > 0:
                    time.sleep(pause)
                put(world.config, good[i // 2 % len(good)] if i % 2 == 0
                    else bad[i // 2 % len(bad)])
                answer = admin.ask("reload")
                counts[answer["ok"]] += 1
                equal(answer["ok"], i % 2 == 0, f"reload {i}: {answer}")
                if answer["ok"]:
                    check(answer["result"]["acknowledged"], f"reload {i}: {answer}")
                if i % 10 == 0:
                    now = [core["loop"]["snapshot_version"]
                           for core in admin.ask("status")["result"]["cores"]]
                    check(all(a >= b for a, b in zip(now, versions)), f"{versions} -> {now}")
                    versions = now
                    for one in held:
                        one.step()
                if i == reloads // 10:
                    before = rss(proxy.pid)
        took = time.monotonic() - start
        out = wrk.communicate(timeout=seconds + 30)[0]
        grown = rss(proxy.pid) - before
        for one in held:
            one.finish()
        equal([one.wrong for one in held if one.wrong], [], "tunnels and uploads")
        check("Non-2xx" not in out and "Socket errors" not in out, out)
        requests = int(re.search(r"(\d+) requests in", out).group(1))
        check(requests > 100 * seconds, out)
        check(grown < 8 * MIB, f"memory grew by {grown} bytes")
        check(took < seconds * 1.5, f"{reloads} reloads took {took:.1f} s")
        now = proxy.status()["config"]
        check(now["version"] >= reloads // 2 - 1, f"{now}")
        print(f"# {counts[True]} reloads taken, {counts[False]} refused in {took:.1f} s; "
              f"{requests} requests; memory {grown / 1024:+.0f} KiB; version {now['version']}")
        put(world.config, text)
        proxy.admin("reload")
        until(lambda: proxy.status()["config"]["listeners_draining"] == 0, 15,
              "no listener drains any more", 0.2)
        wait_quiet(proxy)


@case("a hundred reloads in six seconds, every other one broken: nobody notices", own=True,
      seconds=90)
def reload_storm_short(_):
    storm(6, 100)


@case("a thousand reloads in a minute, every other one broken: nobody notices", long=True, own=True,
      seconds=240)
def reload_storm_long(_):
    storm(60, 1000)


def weights(proxy):
    """What is set by hand, by path."""
    return {o["key"]: (o["value"], o["configured"]) for o in proxy.status()["config"]["overrides"]}


@case("upstreams are changed by hand: shown as overrides, kept by a reload, dropped on demand",
      own=True)
def by_hand(_):
    with Fresh() as world:
        text, proxy = read(world.config), world.proxy
        two = text.replace("  - name: scripted\n    endpoints: [{}:9001]".format(KERNEL),
                           "  - name: scripted\n    endpoints: [{0}:9001, {0}:9004]".format(KERNEL))
        check(two != text, "the template has changed")
        put(world.config, two)
        until(lambda: running(proxy) == 2, 10, "the watch sees the file")
        live, dead = (f"upstreams[scripted].endpoints[{KERNEL}:{port}].weight"
                      for port in (9001, 9004))
        _, out, _ = proxy.admin("upstream", "scripted", "drain", f"{KERNEL}:9004")
        equal(out, f"version 3 is published\n  {dead}: 1 -> 0\n"
                   "overrides in force: 1 (`millrace status` lists them)\n", "drain")
        for _ in range(20):
            equal(status_of("/py/echo"), 200, "without the drained one")
        check(f"{dead}: 0 (the configuration says 1)" in proxy.admin("status")[1], "status")
        proxy.admin("upstream", "scripted", "weight", f"{KERNEL}:9001", "7")
        equal(weights(proxy), {dead: ("0", "1"), live: ("7", "1")}, "overrides")

        # A reload keeps them, by default and if asked to.
        put(world.config, two.replace("idle: 3s", "idle: 4s"))
        proxy.admin("reload", "--keep-overrides")
        equal(weights(proxy), {dead: ("0", "1"), live: ("7", "1")}, "overrides after a reload")
        _, out, _ = proxy.admin("explain", live)
        check(re.search(r": 7  \(set by hand; default says 1\)", out), out)
        # One whose endpoint goes with the file goes with it.
        put(world.config, text)
        until(lambda: weights(proxy) == {live: ("7", "1")}, 10, "only one is left")
        _, out, _ = proxy.admin("reload", "--drop-overrides")
        check(f"overrides dropped:\n  {live}: 7\n" in out, out)
        equal(weights(proxy), {}, "overrides after they were dropped")

        # Everything drained: an answer, and a reason for it.
        proxy.admin("upstream", "scripted", "drain")
        equal(status_of("/py/echo"), 503, "from a drained upstream")
        until(lambda: '"no_endpoint"' in read(os.path.join(world.folder, "access.log")), 5,
              "the reason in the access log")
        check(f"{live}: 0  (set by hand" in proxy.admin("explain", live)[1], "explain")
        proxy.admin("upstream", "scripted", "undrain")
        equal(status_of("/py/echo"), 200, "after it")
        proxy.admin("upstream", "scripted", "limit", "pool.idle", "3")
        code, _, err = proxy.admin("upstream", "scripted", "limit", "pool.idle", "many", ok=False)
        check(code == 1 and "upstreams[scripted].pool.idle: expected" in err, err)
        equal(weights(proxy), {"upstreams[scripted].pool.idle": ("3", "1024")}, "overrides")
        _, out, _ = proxy.admin("upstream", "scripted", "reset", "--json")
        check(json.loads(out)["changed"], out)
        equal(weights(proxy), {}, "overrides after the reset")
        for words in (("scripted",), ("scripted", "burn"), ("scripted", "weight", "x"), ()):
            equal(proxy.admin("upstream", *words, ok=False)[0], 2, f"status of {words}")
        equal(proxy.admin("upstream", "scripte", "drain", ok=False)[0], 1, "an unknown upstream")
