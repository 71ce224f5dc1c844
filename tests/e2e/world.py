"""The shared scene: one Millrace on an embedded port, nginx and scripted origins behind it."""

import os
import socket

import origin
from proc import HERE, Millrace, Nginx, check, numbers, random_file, sh, until

OURS = "10.78.0.1"
KERNEL = "10.78.0.2"
DEVICE = "mre2e0"

WEB, L4, SMALL, LIMITED, STRICT, L4ECHO, L4SUM, L4DEAD = range(8080, 8088)
NGINX, SCRIPTED, ECHO, SUM, DEAD, SENDER = 9000, 9001, 9002, 9003, 9004, 9005


def write_config(folder, name="millrace.yaml", template="e2e.yaml", **values):
    """Fills a template; returns the path."""
    with open(os.path.join(HERE, template), encoding="utf-8") as f:
        text = f.read()
    values = {"folder": folder, "ours": OURS, "kernel": KERNEL, "device": DEVICE, "queues": "1",
              "cores": "1", "poll": "adaptive", "metrics": "127.0.0.1:9901", **values}
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    path = os.path.join(folder, name)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.rename(path + ".new", path)
    return path


class World:
    """Everything that most cases need; cases that break things build their own."""

    def __init__(self, folder, **values):
        self.folder = folder
        self.config = write_config(folder, **values)
        self.files = os.path.join(folder, "files")
        os.makedirs(self.files, exist_ok=True)
        self.sums = {}
        self.proxy = Millrace(self.config, folder)
        self.origins = []
        try:
            self.nginx = Nginx(folder, KERNEL, NGINX, self.files)
            self.scripted = self.origin(origin.Scripted(KERNEL, SCRIPTED))
            self.origin(origin.Listener(KERNEL, ECHO, origin.echo))
            self.origin(origin.Listener(KERNEL, SUM, origin.summing))
        except BaseException:
            self.end()
            raise

    def origin(self, started):
        self.origins.append(started)
        return started

    def end(self):
        """Takes it down; Millrace's exit status."""
        for started in self.origins:
            started.stop()
        if hasattr(self, "nginx"):
            self.nginx.end()
        return self.proxy.end(15)

    def file(self, size):
        """A random file of the origin's; (name, SHA-256)."""
        name = f"f{size}"
        if name not in self.sums:
            self.sums[name] = random_file(os.path.join(self.files, name), size)
        return name, self.sums[name]

    def url(self, path="/", port=WEB):
        return f"http://{OURS}:{port}{path}"

    def curl(self, *arguments, timeout=120, ok=True):
        return sh("curl", "-sS", "--max-time", str(timeout), *arguments, timeout=timeout + 10,
                  ok=ok)

    def still_serves(self):
        check(self.proxy.alive(), lambda: f"millrace died:\n{self.proxy.output()[-4000:]}")
        code, out, err = self.curl(self.url("/"), timeout=10, ok=False)
        check(code == 0 and out == "hello from the origin\n", f"no longer serves: {out!r} {err!r}")


# Live things: all zero when nobody is connected and the pools have been let go.
LIVE = ("clients", "exchanges", "tunnels")


def left_over(status):
    """What a quiet proxy should not have: {name: number}."""
    return {name: numbers(status, name) for name in LIVE if numbers(status, name)}


def wait_quiet(proxy, seconds=15):
    """Until no client, exchange or tunnel is left; the status then."""
    last = {}

    def quiet():
        last["status"] = proxy.status()
        return not left_over(last["status"])
    until(quiet, seconds, "no client, exchange or tunnel left over", pause=0.1)
    return last["status"]


def kernel_mac(device):
    with open(f"/sys/class/net/{device}/address", encoding="ascii") as f:
        return f.read().strip()


def our_mac():
    """Millrace's, as the kernel learnt it."""
    with socket.create_connection((OURS, WEB), 5):
        pass
    _, out, _ = sh("ip", "neigh", "show", OURS)
    words = out.split()
    check("lladdr" in words, f"no neighbour entry for {OURS}: {out}")
    return words[words.index("lladdr") + 1]

