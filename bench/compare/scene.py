"""The wire, the proxies and the clock that the comparisons share.

Two CPUs: the proxy has PROXY_CPU to itself, clients and the origin share the other. Millrace's port
is a veth pair whose far end it takes over; a peer gets the far end of an equal pair in a network
namespace of its own and runs the kernel's TCP there. The client's end has the same address, MTU and
offloads in both.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

from proc import BINARY, Millrace, Nginx, Process, check, sh, until, wait_port

PROXY_CPU, REST_CPU = 1, 0
OURS, KERNEL, PORT, ORIGIN_PORT = "10.77.0.1", "10.77.0.2", 8080, 9000
DEVICE, FAR = "mrbench0", "mrbench1"
RATE = os.path.join(ROOT, "build", "release", "bench", "rate")
_, HARD = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (HARD, HARD))
TICK = os.sysconf("SC_CLK_TCK")

MILLRACE = """
version: 1
runtime: {{ cores: [{cpu}], poll: {poll} }}
ports:
  - name: edge0
    driver: veth
    device: {device}
    host_address: {kernel}/24
    addresses: [{ours}/24]
listeners:
  - name: web
    address: {ours}:{port}
    http:
      access_log: false
      timeouts: {{ idle: 300s }}
      routes:
        - match: {{ host: "*", path_prefix: / }}
          upstream: app
upstreams:
  - name: app
    endpoints: [{kernel}:{origin}]
admin: {{ socket: {folder}/admin.sock }}
{extra}
"""

HAPROXY = """
global
    nbthread 1
    maxconn 4000
defaults
    mode http
    timeout connect 5s
    timeout client 300s
    timeout server 300s
    http-reuse always
    option forwardfor
listen web
    bind {ours}:{port}
    server app {kernel}:{origin} pool-max-conn -1
"""

NGINX = """
daemon off;
worker_processes 1;
user root;
pid {folder}/peer.pid;
error_log {folder}/peer.err warn;
events {{ worker_connections 8000; }}
http {{
    access_log off;
    keepalive_requests 100000000;
    keepalive_timeout 300s;
    client_body_temp_path {folder}/peer.body;
    proxy_temp_path {folder}/peer.proxy;
    fastcgi_temp_path {folder}/peer.fastcgi;
    uwsgi_temp_path {folder}/peer.uwsgi;
    scgi_temp_path {folder}/peer.scgi;
    upstream app {{
        server {kernel}:{origin};
        keepalive 256;
        keepalive_requests 100000000;
    }}
    server {{
        listen {ours}:{port} backlog=4096;
        location / {{
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
        }}
    }}
}}
"""


def fill(template, folder, **more):
    return template.format(folder=folder, ours=OURS, kernel=KERNEL, port=PORT, origin=ORIGIN_PORT,
                           device=DEVICE, cpu=PROXY_CPU, **more)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


class CpuTimes:
    """Seconds of one CPU since start, from /proc/stat."""

    def __init__(self, cpu):
        with open("/proc/stat", encoding="ascii") as f:
            words = next(line for line in f if line.startswith(f"cpu{cpu} ")).split()
        user, nice, system, idle, iowait, irq, softirq = (int(w) / TICK for w in words[1:8])
        self.busy = user + nice + system + irq + softirq
        self.softirq = irq + softirq
        self.idle = idle + iowait


class MillraceProxy:
    name = "millrace"

    def __init__(self, folder, poll="adaptive", extra="", binary=BINARY):
        self.poll = poll
        config = write(folder, "millrace.yaml", fill(MILLRACE, folder, poll=poll, extra=extra))
        self.process = Millrace(config, folder, cpus=str(REST_CPU), binary=binary)
        self.pid = self.process.pid

    def busy_seconds(self):
        """The core's busy passes, by TSC: the core polls, so its CPU is never idle to the kernel."""
        return self.process.status()["cores"][0]["loop"]["busy_ns"] / 1e9

    def end(self):
        self.process.end(15)


class OtherMillrace(MillraceProxy):
    """Another build, beside the tree's own."""

    name = "other"


class Peer:
    """A proxy on the kernel's TCP, in a network of its own behind an equal wire."""

    cpus = str(PROXY_CPU)

    def __init__(self, folder, command):
        self.holder = Process(["unshare", "--net", "sleep", "infinity"],
                              os.path.join(folder, "holder.log"))
        mine = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != mine, 5, "a network")
        sh("ip", "link", "add", DEVICE, "numtxqueues", "1", "numrxqueues", "1", "type", "veth",
           "peer", "name", FAR, "netns", str(self.holder.pid))
        sh("ip", "addr", "add", f"{KERNEL}/24", "dev", DEVICE)
        sh("ethtool", "-K", DEVICE, "tx", "off", "tso", "off", "gso", "off", "gro", "off", ok=False)
        sh("ip", "link", "set", DEVICE, "up")
        inside = ["nsenter", "-t", str(self.holder.pid), "--net"]
        sh(*inside, "ip", "link", "set", "lo", "up")
        sh(*inside, "ip", "addr", "add", f"{OURS}/24", "dev", FAR)
        sh(*inside, "ip", "link", "set", FAR, "up")
        self.process = Process([*inside, "taskset", "-c", self.cpus, *command],
                               os.path.join(folder, f"{self.name}.log"))
        self.pid = self.process.pid
        self.is_ready()

    def is_ready(self):
        wait_port(OURS, PORT, process=self.process)

    def busy_seconds(self):
        return CpuTimes(PROXY_CPU).busy

    def end(self):
        self.process.end(5)
        self.holder.end(2)
        sh("ip", "link", "del", DEVICE, ok=False)


class HaproxyProxy(Peer):
    name = "haproxy"

    def __init__(self, folder):
        super().__init__(folder, ["haproxy", "-db", "-f",
                                  write(folder, "haproxy.cfg", fill(HAPROXY, folder))])


class NginxProxy(Peer):
    name = "nginx"

    def __init__(self, folder):
        super().__init__(folder, ["nginx", "-p", folder, "-e", f"{folder}/peer.err", "-c",
                                  write(folder, "peer.conf", fill(NGINX, folder))])


class Direct(Peer):
    """No proxy: an equal wire, to give the client's end its address. What a request costs anyway."""
    name = "direct"

    def __init__(self, folder):
        super().__init__(folder, ["sleep", "infinity"])

    def is_ready(self):
        pass


class Setting:
    """A proxy and its origin, up for one measurement."""

    def __init__(self, kind, folder, **options):
        self.folder = os.path.join(folder, f"{kind.name}.{time.monotonic_ns()}")
        os.makedirs(self.folder)
        self.proxy = kind(self.folder, **options)
        self.target = (KERNEL, ORIGIN_PORT) if kind is Direct else (OURS, PORT)

    def __enter__(self):
        self.origin = Nginx(self.folder, KERNEL, ORIGIN_PORT, os.path.join(self.folder, "files"),
                            cpus=str(REST_CPU))
        return self

    def __exit__(self, *_):
        self.origin.end()
        self.proxy.end()


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")),
                     platform.machine())
    with open("/proc/meminfo", encoding="ascii") as f:
        memory = int(f.readline().split()[1]) // 1024
    return {"cpu": model, "cpus": os.cpu_count(), "memory_mib": memory, "kernel": platform.release(),
            "proxy_cpu": PROXY_CPU, "rest_cpu": REST_CPU}


def first_line(*command):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as e:
        return str(e)
    return done.stdout.decode(errors="replace").split("\n")[0].strip()


def versions():
    return {"millrace": first_line(BINARY, "version"), "haproxy": first_line("haproxy", "-v"),
            "nginx": first_line("nginx", "-v"), "wrk": first_line("wrk", "-v")}


def commit():
    head = first_line("git", "-C", ROOT, "rev-parse", "HEAD")
    dirty = first_line("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no")
    return head + ("+" if dirty else "")


def save(name, result):
    folder = os.path.join(ROOT, "build", "bench")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    return path


def header():
    return {"commit": commit(), "command": " ".join(sys.argv), "machine": machine(),
            "versions": versions(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def median(values):
    values = sorted(values)
    n = len(values)
    check(n, "nothing to take the median of")
    return values[n // 2] if n % 2 else (values[n // 2 - 1] + values[n // 2]) / 2
