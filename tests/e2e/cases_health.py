"""Origins that come and go, and probes that notice it, in the real program."""

import os
import signal

from cases import case
from proc import Folder, Millrace, Nginx, check, equal, sh, until
from world import KERNEL, OURS, WEB, write_config

PORTS = (9000, 9001, 9002)


class Herd:
    """Millrace before three nginx; those can be killed, frozen and brought back."""

    def __init__(self, **values):
        self.folder, self.values, self.origins = Folder(), values, {}

    def __enter__(self):
        path = self.folder.__enter__()
        self.path = path
        # The kernel's address comes with the port: the origins start behind it.
        self.proxy = Millrace(write_config(path, template="health.yaml", **self.values), path)
        for port in PORTS:
            self.start(port)
        return self

    def __exit__(self, kind, *_):
        try:
            for o in self.origins.values():
                o.end(5, signal.SIGKILL)
            status = self.proxy.end(15) if hasattr(self, "proxy") else 0
            if kind is None:
                equal(status, 0, "exit status after SIGTERM")
        finally:
            self.folder.__exit__()

    def start(self, port):
        folder = os.path.join(self.path, str(port))
        os.makedirs(folder, exist_ok=True)
        self.origins[port] = Nginx(folder, KERNEL, port, os.path.join(folder, "files"),
                                   hello=f"{port}")

    def endpoint(self, port):
        (upstream,) = self.proxy.status()["upstreams"]
        for e in upstream["endpoints"]:
            if e["address"] == f"{KERNEL}:{port}":
                return e
        return None

    def wait_used(self, port, used):
        until(lambda: self.endpoint(port)["used"] == used, 5,
              f"endpoint {port} to be {'used' if used else 'left out'}")


@case("probes find a dead and a frozen origin and its return, on two cores", own=True)
def probes_find_out(_):
    with Herd(cores="0, 1") as herd:
        for port in PORTS:
            herd.wait_used(port, 1)
            until(lambda p=port: herd.endpoint(p)["probe"] == "ok", 5, "a first good probe")
        herd.origins[9000].kill()
        herd.wait_used(9000, 0)
        check(herd.endpoint(9000)["probe"] == "refused", lambda: herd.endpoint(9000))
        herd.origins[9001].tell(signal.SIGSTOP)
        herd.wait_used(9001, 0)
        check(herd.endpoint(9001)["probe"] == "timeout", lambda: herd.endpoint(9001))
        for _i in range(20):
            body = sh("curl", "-sS", "--max-time", "5", f"http://{OURS}:{WEB}/")[1]
            equal(body, "9002", "the only origin that is left")
        herd.origins[9001].tell(signal.SIGCONT)
        herd.start(9000)
        for port in (9000, 9001):
            herd.wait_used(port, 1)
        log = herd.proxy.output()
        for what in ("is unhealthy: by its probes, the last one said refused",
                     "is unhealthy: by its probes, the last one said timeout",
                     "is no longer unhealthy"):
            check(what in log, lambda w=what: f"{w!r} is not in the log:\n{log[-3000:]}")
