"""Ports alone, without the stack: port_probe answers ARP, echo and UDP by hand."""

import hashlib
import json
import os
import signal
import socket
import struct
import time

import origin
from cases import case
from cases_wire import icmp_echo
from proc import BINARY, Folder, Millrace, Process, check, equal, sh, until

PROBE = os.path.join(os.path.dirname(os.path.dirname(BINARY)), "tests", "e2e", "port_probe")
STEER = os.path.join(os.path.dirname(os.path.dirname(BINARY)), "dataplane", "xdp", "steer.bpf.o")
DEVICE, OURS, KERNEL = "mrprobe0", "10.81.0.1", "10.81.0.2/24"


class Probe(Process):
    def __init__(self, folder, queues=1, driver="veth", device=DEVICE, ready=True, more=()):
        super().__init__([PROBE, driver, device, str(queues), OURS, KERNEL, *more],
                         os.path.join(folder, f"probe.{time.monotonic_ns()}"))
        if ready:
            until(lambda: "ready" in self.output() or not self.alive(), 20, "the probe is ready")
            check(self.alive(), lambda: f"the probe ended: {self.output()}")

    def refused(self):
        """Its last line, after it has ended by itself with status 1."""
        equal(self.wait(20), 1, "exit status")
        return self.output().strip().split("\n")[-1]

    def report(self):
        equal(self.end(10), 0, "exit status")
        return json.loads(self.output().strip().split("\n")[-1])

    def cpu_ms(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 // os.sysconf("SC_CLK_TCK")


def has_device(name=DEVICE):
    return os.path.exists(f"/sys/class/net/{name}")


def pings(count):
    """Different identifiers, so that the kernel spreads them over its queues."""
    for i in range(count):
        payload = struct.pack("!Q", i) * 20
        equal(icmp_echo(OURS, payload, ident=1000 + i, seq=i), payload, f"ping {i}")


def udp(flows, rounds):
    """Datagrams there and back on many flows; how many came back whole."""
    whole = 0
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(flows)]
    for s in sockets:
        s.connect((OURS, 7))
        s.settimeout(2)
    for i in range(rounds):
        data = struct.pack("!Q", i) + b"x" * (i * 37 % 1400)
        for s in sockets:
            s.send(data)
        for s in sockets:
            whole += s.recv(2000) == data
    for s in sockets:
        s.close()
    return whole


@case("port: one queue receives, answers, and is gone afterwards", own=True)
def one_queue(_):
    with Folder() as folder:
        probe = Probe(folder)
        pings(20)
        equal(udp(8, 100), 800, "datagrams that came back")
        report = probe.report()
        check(report["redirect"] >= 820 and report["tx_errors"] == 0, report)
        check(not has_device() and not has_device(DEVICE + "p"), "the veth pair stays behind")
        left = [f for f in os.listdir("/run/millrace") if DEVICE in f]
        equal(left, [], "locks left behind")


@case("port: two queues receive and send", own=True)
def two_queues(_):
    with Folder() as folder:
        probe = Probe(folder, queues=2)
        pings(60)
        equal(udp(32, 50), 1600, "datagrams that came back")
        report = probe.report()
        check(all(q["rx"] > 100 for q in report["queues"]), f"a queue got nothing: {report}")
        equal(report["drop"], 0, "frames for queues that nobody serves")


@case("port: an idle queue sleeps, and a frame wakes it at once", own=True)
def idle(_):
    with Folder() as folder:
        probe = Probe(folder, queues=2)
        pings(2)
        before, start = probe.cpu_ms(), time.monotonic()
        until(lambda: time.monotonic() > start + 1.5, 3, "a while", pause=0.1)
        used = probe.cpu_ms() - before
        check(used <= 100, f"{used} ms of CPU in 1.5 s of idling")
        took = []
        for i in range(20):
            start = time.monotonic()
            pings(1)
            took.append(time.monotonic() - start)
        check(sorted(took)[10] < 0.1, f"median answer after {sorted(took)[10]} s")
        probe.end()


@case("port: kill -9 leaves no program attached, and a restart just works", own=True)
def kill(_):
    with Folder() as folder:
        for _ in range(3):
            probe = Probe(folder, queues=2)
            pings(5)
            probe.end(5, signal.SIGKILL)
            check(has_device(), "kill -9 can't have removed the pair")
            out = sh("ip", "-d", "link", "show", DEVICE + "p")[1]
            check("prog/xdp" not in out, f"attached to nobody: {out}")
        probe = Probe(folder)
        pings(5)
        probe.end()
        check(not has_device(), "the pair stays behind")


@case("port: a second instance is refused and harms nothing", own=True)
def second(_):
    with Folder() as folder:
        probe = Probe(folder)
        line = Probe(folder, ready=False).refused()
        check(f"another Millrace (process {probe.pid}) has device {DEVICE}" in line, line)
        pings(3)
        probe.end()


@case("port: an interface that isn't ours is refused and kept", own=True)
def foreign(_):
    with Folder() as folder:
        sh("ip", "link", "add", DEVICE, "type", "veth", "peer", "name", "mrother0")
        line = Probe(folder, ready=False).refused()
        check("exists and isn't Millrace's" in line, line)
        check(has_device(), "someone's interface is gone")
        sh("ip", "link", "del", DEVICE)
        line = Probe(folder, driver="af_xdp", ready=False).refused()
        check(f"no interface {DEVICE}" in line, line)


@case("port: a steer program that a crash left is replaced, another's is not", own=True)
def leftover(_):
    with Folder() as folder:
        sh("ip", "link", "add", DEVICE, "numtxqueues", "1", "numrxqueues", "1", "type", "veth",
           "peer", "name", "mrother0", "numtxqueues", "1", "numrxqueues", "1")
        sh("ip", "link", "set", DEVICE, "xdp", "obj", STEER, "sec", "xdp")
        probe = Probe(folder, driver="af_xdp")
        probe.end()
        out = sh("ip", "-d", "link", "show", DEVICE)[1]
        check("prog/xdp" not in out, f"still attached: {out}")
        other = os.path.join(folder, "other.o")
        sh("clang", "-target", "bpf", "-O2", "-g", "-x", "c", "-c", "-o", other, "-",
           input=b'__attribute__((section("xdp"), used)) int other(void *c) { return 2; }\n')
        sh("ip", "link", "set", DEVICE, "xdp", "obj", other, "sec", "xdp")
        line = Probe(folder, driver="af_xdp", ready=False).refused()
        check('already runs the XDP program "other"' in line, line)
        check("prog/xdp" in sh("ip", "-d", "link", "show", DEVICE)[1], "another's is gone")
        sh("ip", "link", "del", DEVICE)


@case("port: who isn't root, or has no huge pages for PCI, is told what to do", own=True)
def told(_):
    with Folder() as folder:
        status, _, err = sh("setpriv", "--reuid", "65534", "--clear-groups", PROBE, "veth", DEVICE,
                            "1", OURS, KERNEL, ok=False)
        equal(status, 1, "exit status")
        check("needs root" in err and "sudo" in err, err)
        line = Probe(folder, driver="pci", device="0000:ff:1f.7", ready=False).refused()
        check("huge pages" in line or "dpdk-devbind.py" in line, line)


@case("port: a TAP device works as well", own=True)
def tap(_):
    if not os.path.exists("/dev/net/tun"):
        return
    with Folder() as folder:
        probe = Probe(folder, driver="tap", device="mrtap0")
        pings(5)
        equal(udp(4, 50), 200, "datagrams that came back")
        probe.end()
        check(not has_device("mrtap0"), "the interface stays behind")


@case("port: two processes talk over memif, and one outlives the other", own=True)
def memif(_):
    with Folder() as folder:
        path = os.path.join(folder, "memif.sock")
        server = Probe(folder, driver="memif", device=path, more=("role=server",))
        for _ in range(2):
            client = Probe(folder, driver="memif", device=path, more=("role=client", "100"))
            until(lambda c=client: "answered" in c.output(), 20, "100 echoes over memif")
            equal(client.end(10), 0, "the client's exit status")
        equal(server.end(10), 0, "the server's exit status")


MANY = """
version: 1
runtime: {{ cores: [0, 1] }}
ports:
  - {{ name: a, driver: veth, device: mrmany0, host_address: 10.91.0.2/24, queues: 2,
       addresses: [10.91.0.1/24] }}
  - {{ name: b, driver: veth, device: mrmany1, host_address: 10.92.0.2/24,
       addresses: [10.92.0.1/24] }}
  - {{ name: c, driver: tap, device: mrmany2, host_address: 10.93.0.2/24, queues: 1,
       addresses: [10.93.0.1/24] }}
listeners:
  - {{ name: a, address: "10.91.0.1:8080", tunnel: {{ upstream: c }} }}
  - {{ name: b, address: "10.92.0.1:8080", tunnel: {{ upstream: a }} }}
  - {{ name: c, address: "10.93.0.1:8080", tunnel: {{ upstream: b }} }}
upstreams:
  - {{ name: a, endpoints: ["10.91.0.2:9000"] }}
  - {{ name: b, endpoints: ["10.92.0.2:9000"] }}
  - {{ name: c, endpoints: ["10.93.0.2:9000"] }}
admin: {{ socket: {folder}/admin.sock }}
"""


@case("port: three ports of two drivers, each in from one and out by another", own=True)
def many(_):
    with Folder() as folder:
        config = os.path.join(folder, "many.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(MANY.format(folder=folder))
        proxy = Millrace(config, folder)
        ends = [origin.Listener(f"10.{n}.0.2", 9000, origin.echo) for n in (91, 92, 93)]
        data = origin.pattern(300000)
        try:
            for n in (91, 92, 93):
                with socket.create_connection((f"10.{n}.0.1", 8080), 5) as s:
                    s.settimeout(10)
                    got = b""
                    for at in range(0, len(data), 50000):
                        s.sendall(data[at:at + 50000])
                        while len(got) < at + 50000:
                            piece = s.recv(65536)
                            check(piece, f"port {n}: closed after {len(got)} bytes")
                            got += piece
                equal(hashlib.sha256(got).hexdigest(), hashlib.sha256(data).hexdigest(),
                      f"echo by port {n}")
            status = proxy.end(15)
            check(status == 0, lambda: f"exit status {status}:\n{proxy.output()[-2000:]}")
            check(not any(has_device(f"mrmany{i}") for i in range(3)), "interfaces stay behind")
        finally:
            proxy.end(5)
            for end in ends:
                end.stop()
