"""The proxies with TLS on port 8443, and plain HTTP on 8080 beside it.

Millrace's core has PROXY_CPU to itself; its pool, control and log threads share the other CPU with
the clients and the origin, the pool at a lower priority. A peer with one thread has PROXY_CPU to
itself; with two it has both CPUs, as its clients have.
"""

import os
import time

import scene
from proc import Millrace, sh, wait_port
from scene import KERNEL, OURS, PROXY_CPU, REST_CPU, TICK, HaproxyProxy, MillraceProxy, NginxProxy, Peer

TLS_PORT, NAME = 8443, "www.example.com"
HANDSHAKES = os.path.join(scene.ROOT, "build", "release", "bench", "handshakes")
POOL_NICE = 5

MILLRACE_TLS = """listeners:
  - name: sealed
    address: {ours}:{tls}
    tls: {{ certificates: [{{ cert: {cert}, key: {key} }}] }}
    http:
      access_log: false
      timeouts: {{ idle: 300s }}
      routes: [{{ upstream: app }}]
"""

HAPROXY_TLS = """
global
    nbthread {threads}
    maxconn 9000
    ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    http-reuse always
    option forwardfor
listen web
    bind {ours}:{port}
    bind {ours}:{tls} ssl crt {pem}
    server app {kernel}:{origin} pool-max-conn -1
"""

NGINX_LISTEN = """listen {ours}:{tls} ssl backlog=4096;
        ssl_certificate {cert};
        ssl_certificate_key {key};
        ssl_protocols TLSv1.2 TLSv1.3;
        listen"""


class Certificate:
    """Self-signed, of one kind of key."""

    def __init__(self, folder, kind):
        options = {"ecdsa": ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
                   "rsa": ["-newkey", "rsa:2048"]}[kind]
        self.cert, self.key, self.pem = (os.path.join(folder, f"{kind}.{e}")
                                         for e in ("crt", "key", "pem"))
        sh("openssl", "req", "-x509", *options, "-nodes", "-keyout", self.key, "-out", self.cert,
           "-days", "30", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}")
        with open(self.pem, "w", encoding="ascii") as out:
            for path in (self.cert, self.key):
                with open(path, encoding="ascii") as f:
                    out.write(f.read())


def ticks_of(path):
    with open(path, encoding="ascii") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / TICK


def thread_names(pid):
    """{thread: name}."""
    out = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as f:
            out[int(tid)] = f.read().strip()
    return out


def tree(pid):
    """The process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = [int(w) for w in f.read().split()]
    return [pid] + [p for c in children for p in tree(c)]


class TlsMillrace(MillraceProxy):
    """Seconds are those of the core's busy passes and of all other threads."""

    def __init__(self, folder, certificate, connections=0):
        text = scene.fill(scene.MILLRACE, folder, poll="adaptive", extra="")
        more = MILLRACE_TLS.format(ours=OURS, tls=TLS_PORT, cert=certificate.cert,
                                   key=certificate.key)
        text = text.replace("listeners:\n", more)
        if connections:
            text = text.replace("runtime: { ", f"runtime: {{ connections: {connections}, ")
        self.process = Millrace(scene.write(folder, "millrace.yaml", text), folder,
                                cpus=str(REST_CPU))
        self.pid = self.process.pid
        for tid, name in thread_names(self.pid).items():
            if name.startswith("pool"):
                os.setpriority(os.PRIO_PROCESS, tid, POOL_NICE)

    def cpu_seconds(self):
        others = [t for t, name in thread_names(self.pid).items() if not name.startswith("core")]
        return self.busy_seconds() + sum(ticks_of(f"/proc/{self.pid}/task/{t}/stat") for t in others)


class TlsPeer(Peer):
    """Seconds are those of its processes, without what the kernel receives on their behalf in an
    interrupt."""

    threads = 1

    def is_ready(self):
        wait_port(OURS, TLS_PORT, process=self.process)

    def cpu_seconds(self):
        return sum(ticks_of(f"/proc/{p}/stat") for p in tree(self.pid))

    @classmethod
    def cpus_of(cls):
        return str(PROXY_CPU) if cls.threads == 1 else f"{PROXY_CPU},{REST_CPU}"


class TlsHaproxy(TlsPeer):
    name = "haproxy"

    def __init__(self, folder, certificate):
        self.cpus = self.cpus_of()
        text = scene.fill(HAPROXY_TLS, folder, tls=TLS_PORT, pem=certificate.pem,
                          threads=self.threads)
        Peer.__init__(self, folder, ["haproxy", "-db", "-f",
                                     scene.write(folder, "haproxy.cfg", text)])


class TlsNginx(TlsPeer):
    name = "nginx"

    def __init__(self, folder, certificate):
        self.cpus = self.cpus_of()
        listen = NGINX_LISTEN.format(ours=OURS, tls=TLS_PORT, cert=certificate.cert,
                                     key=certificate.key)
        text = scene.fill(scene.NGINX, folder).replace("listen", listen, 1)
        text = text.replace("worker_processes 1", f"worker_processes {self.threads}")
        Peer.__init__(self, folder, ["nginx", "-p", folder, "-e", f"{folder}/peer.err", "-c",
                                     scene.write(folder, "peer.conf", text)])


class TlsHaproxy2(TlsHaproxy):
    name, threads = "haproxy-2", 2


class TlsNginx2(TlsNginx):
    name, threads = "nginx-2", 2


KINDS = {k.name: k for k in (TlsMillrace, TlsHaproxy, TlsHaproxy2, TlsNginx, TlsNginx2)}


class Spent:
    """A proxy's CPU seconds while the block ran, and how long that was."""

    def __init__(self, proxy):
        self.proxy = proxy

    def __enter__(self):
        self.before = self.proxy.cpu_seconds(), time.monotonic()
        return self

    def __exit__(self, *_):
        self.cpu = self.proxy.cpu_seconds() - self.before[0]
        self.seconds = time.monotonic() - self.before[1]


def client(*command, timeout):
    """What a client on the clients' CPU printed."""
    return sh("taskset", "-c", str(REST_CPU), *command, timeout=timeout)[1]
