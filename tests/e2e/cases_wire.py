"""The wire itself: neighbours, echo, hostile packets, other people's traffic, two queues."""

import os
import random
import select
import socket
import struct
import time

import origin
from cases import case
from cases_life import Fresh
from proc import Folder, Millrace, Process, check, equal, flat, numbers, sh, until
from raw import ask
from world import DEVICE, KERNEL, OURS, WEB, kernel_mac, our_mac, wait_quiet


def icmp_echo(address, payload, ident=77, seq=1):
    """One ping; the answer's payload or None."""
    def checksum(data):
        total = sum(struct.unpack(f"!{len(data) // 2}H", data))
        total = (total >> 16) + (total & 0xffff)
        return ~(total + (total >> 16)) & 0xffff
    body = struct.pack("!HH", ident, seq) + payload
    packet = b"\x08\x00" + struct.pack("!H", checksum(b"\x08\x00\x00\x00" + body)) + body
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
        s.connect((address, 0))
        s.send(packet)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if not select.select([s], [], [], end - time.monotonic())[0]:
                return None
            got = s.recv(65536)
            got = got[(got[0] & 15) * 4:]
            if got[0] == 0 and got[4:8] == body[:4]:
                return got[8:]
    return None


@case("ping: our address answers, with the bytes it was given")
def ping(world):
    for size in (0, 8, 56, 1400):
        payload = origin.pattern(size)
        equal(icmp_echo(OURS, payload, seq=size), payload, f"echo of {size} bytes")


@case("ARP: the kernel finds us again after it has forgotten")
def arp(world):
    sh("ip", "neigh", "flush", "dev", DEVICE)
    world.still_serves()
    mac = our_mac()
    check(mac != kernel_mac(DEVICE), "our MAC is the kernel's")


@case("a closed port of ours answers with RST at once")
def closed_port(world):
    start = time.monotonic()
    try:
        socket.create_connection((OURS, 4), 5).close()
        check(False, "something listens at port 4")
    except ConnectionRefusedError:
        pass
    check(time.monotonic() - start < 1, "refusal took too long")


def hostile(mac_us, mac_kernel):
    """Packets that no honest host sends, from a fixed seed."""
    from scapy.all import ARP, ICMP, IP, TCP, UDP, Ether, Raw, fragment
    rng = random.Random(2)
    ether = Ether(src=mac_kernel, dst=mac_us)

    def ip(**fields):
        return ether / IP(src=KERNEL, dst=OURS, **fields)
    out = [ip(ihl=n) / TCP(dport=WEB) for n in (0, 4, 15)]
    out += [ip(len=n) / TCP(dport=WEB) for n in (0, 19, 20, 30, 65535)]
    out += [ip(version=n) / TCP(dport=WEB) for n in (0, 5, 6, 15)]
    out += [ip(chksum=1) / TCP(dport=WEB), ip() / TCP(dport=WEB, chksum=1), ip(ttl=0) / TCP(dport=WEB)]
    out += [ip() / TCP(dport=WEB, dataofs=n) for n in (0, 4, 15)]
    out += [ip() / TCP(sport=rng.randrange(1, 65536), dport=WEB, flags=f, seq=rng.getrandbits(32),
                       ack=rng.getrandbits(32)) for f in range(512) if f % 3 == 0]
    out += [ip() / TCP(dport=WEB, flags="S", options=[(n, b"x" * m)])
            for n in (2, 3, 4, 5, 8, 253) for m in (0, 1, 3, 9, 30)]
    # Land attack, broadcast and multicast sources, a source of ours.
    out += [ether / IP(src=s, dst=OURS) / TCP(sport=WEB, dport=WEB, flags="S")
            for s in (OURS, "255.255.255.255", "224.0.0.1", "0.0.0.0", "127.0.0.1")]
    out += [p for p in fragment(ip() / TCP(dport=WEB) / Raw(b"x" * 4000), fragsize=700)]
    out += [ip(frag=8191, flags="MF") / Raw(b"x" * 100), ip(frag=1) / Raw(b"x")]
    out += [ip(proto=n) / Raw(b"x" * 20) for n in (0, 2, 41, 47, 132, 255)]
    out += [ip() / UDP(dport=53) / Raw(b"x"), ip() / UDP(dport=53, len=3)]
    out += [ip() / ICMP(type=t, code=c) / Raw(b"x" * n) for t in (0, 3, 4, 5, 8, 11, 12, 13, 42)
            for c in (0, 4, 255) for n in (0, 28)]
    inner = IP(src=OURS, dst=KERNEL) / TCP(sport=WEB, dport=1234, seq=1)
    out += [ip() / ICMP(type=3, code=4, nexthopmtu=m) / inner for m in (0, 1, 67, 68, 576, 65535)]
    out += [ether / ARP(op=op, hwlen=h, plen=p, psrc=KERNEL, pdst=OURS)
            for op in (0, 1, 2, 3, 99) for h in (0, 6, 255) for p in (0, 4, 16)
            if (op, h, p) != (2, 6, 4)]
    wire = [bytes(p) for p in out]
    whole = bytes(ip() / TCP(dport=WEB, flags="PA") / Raw(b"GET / HTTP/1.1\r\n\r\n"))
    wire += [whole[:n] for n in range(14, len(whole))]
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(12, len(damaged))] = rng.getrandbits(8)
        wire.append(bytes(damaged))
    head = bytes(ether)[:12]
    wire += [head + bytes(rng.getrandbits(8) for _ in range(rng.randrange(2, 1400)))
             for _ in range(500)]
    return wire


def send_frames(device, frames):
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
        s.bind((device, 0))
        for frame in frames:
            try:
                s.send(frame)
            except OSError:
                pass  # the kernel won't send what is shorter than a header


@case("hostile packets: dropped and counted, and everyone else is served", seconds=120)
def hostile_packets(world):
    frames = hostile(our_mac(), kernel_mac(DEVICE))
    before = world.proxy.status()
    for _ in range(3):
        send_frames(DEVICE, frames)
        world.still_serves()
    after = world.proxy.status()
    moved = {k: v - flat(before).get(k, 0) for k, v in flat(after).items()
             if "drop" in k and v > flat(before).get(k, 0)}
    check(sum(moved.values()) > 1000, f"hardly a drop counted: {moved}")
    check(len(moved) > 8, f"few reasons told apart: {moved}")
    sh("ip", "neigh", "flush", "dev", DEVICE)
    world.still_serves()


@case("a SYN flood from many sources leaves the connected ones served", seconds=60)
def syn_flood(world):
    from scapy.all import IP, TCP, Ether
    rng = random.Random(3)
    ether = Ether(src=kernel_mac(DEVICE), dst=our_mac())
    frames = [bytes(ether / IP(src=f"10.78.{rng.randrange(1, 255)}.{rng.randrange(1, 255)}", dst=OURS)
                    / TCP(sport=rng.randrange(1, 65536), dport=WEB, flags="S",
                          seq=rng.getrandbits(32))) for _ in range(3000)]
    for _ in range(5):
        send_frames(DEVICE, frames)
        world.still_serves()


STEER = """
version: 1
runtime: {{ cores: [1] }}
ports:
  - name: nic
    driver: af_xdp
    device: mrnic0
    addresses: [10.80.0.1/24]
listeners:
  - name: web
    address: 10.80.0.1:8080
    http:
      routes:
        - match: {{ host: "*", path_prefix: / }}
          upstream: app
upstreams:
  - name: app
    endpoints: [10.80.0.2:9000]
admin: {{ socket: {folder}/admin.sock }}
"""


class Elsewhere:
    """A second network, and a wire to it: the machine at the other end of the NIC."""

    def __init__(self, folder):
        self.holder = Process(["unshare", "--net", "sleep", "infinity"],
                              os.path.join(folder, "holder.log"))
        until(self.is_apart, 5, "a network of its own")
        sh("ip", "link", "add", "mrnic0", "type", "veth", "peer", "name", "mrfar0", "netns",
           str(self.holder.pid))
        sh("ip", "addr", "add", "10.80.0.3/24", "dev", "mrnic0")
        sh("ip", "link", "set", "mrnic0", "up")
        for command in ("ip link set lo up", "ip addr add 10.80.0.2/24 dev mrfar0",
                        "ip link set mrfar0 up", "ethtool -K mrfar0 tx off tso off gso off gro off"):
            self.run(*command.split())

    def is_apart(self):
        mine = os.readlink("/proc/self/ns/net")
        try:
            return os.readlink(f"/proc/{self.holder.pid}/ns/net") != mine
        except OSError:
            return False

    def command(self, *words):
        return ["nsenter", "-t", str(self.holder.pid), "--net", *words]

    def run(self, *words, **options):
        return sh(*self.command(*words), **options)

    def end(self):
        self.holder.end(2)


@case("steering: VIP traffic to us, the kernel's own traffic on the same wire undisturbed",
      own=True, seconds=90)
def steer(_):
    with Folder() as folder:
        far = Elsewhere(folder)
        script = "import sys; sys.path.insert(0, sys.argv[1]); import origin, time; " \
                 "origin.Scripted('10.80.0.2', 9000); time.sleep(1000)"
        served = Process(far.command("python3", "-c", script, os.path.dirname(__file__)),
                         os.path.join(folder, "far.log"))
        # Something like ssh on the kernel's own address of the wire.
        kernel = origin.Listener("10.80.0.3", 22, origin.echo)
        config = os.path.join(folder, "steer.yaml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(STEER.format(folder=folder))
        proxy = Millrace(config, folder)
        talk = ("import socket\ns = socket.create_connection(('10.80.0.3', 22), 5)\n"
                "for i in range(200):\n    s.sendall(b'x' * 500)\n    n = 0\n"
                "    while n < 500:\n        n += len(s.recv(500))\nprint('fine')\n")
        try:
            until(lambda: far.run("curl", "-sS", "http://10.80.0.2:9000/size/1", ok=False)[0] == 0,
                  10, "the far origin")
            for _ in range(3):
                out = far.run("curl", "-sS", "--max-time", "5", "http://10.80.0.1:8080/size/3000")[1]
                equal(out.encode("latin-1", "replace")[:3], b"\x00\x01\x02", "through the VIP")
                equal(far.run("python3", "-c", talk)[1], "fine\n", "the kernel's own talk")
            passed, redirected = (numbers(proxy.status(), f"steer_{x}") for x in ("pass", "redirect"))
            check(passed > 100 and redirected > 10, f"verdicts: {passed} {redirected}")
            equal(proxy.end(15), 0, "exit status")
            equal(far.run("python3", "-c", talk)[1], "fine\n", "the kernel's talk afterwards")
            _, out, _ = sh("ip", "-d", "link", "show", "mrnic0")
            check("prog/xdp" not in out, f"an XDP program stays behind: {out}")
        finally:
            proxy.end(5)
            kernel.stop()
            served.end(2)
            far.end()


@case("two cores and two queues: all is as with one", own=True, seconds=120)
def two_queues(_):
    with Fresh(cores="0, 1", queues="2") as world:
        world.still_serves()
        for i in range(50):
            a = ask(OURS, WEB, f"GET /py/size/{i * 1000} HTTP/1.1\nHost: a\n\n")
            check(a.whole and a.body == origin.pattern(i * 1000), f"{i}: {a}")
        name, expected = world.file(64 << 20)
        path = os.path.join(world.folder, "two")
        world.curl("-o", path, world.url("/" + name))
        equal(sh("sha256sum", path)[1].split()[0], expected, "SHA-256")
        _, out, _ = sh("wrk", "-t", "1", "-c", "64", "-d", "3s", world.url("/"))
        check("Socket errors" not in out and "Non-2xx" not in out, out)
        polls = [c for c in world.proxy.status().get("cores", []) if numbers(c, "accepted") > 0]
        check(len(polls) == 2, f"cores that accepted: {len(polls)}")
        wait_quiet(world.proxy)


@case("poll: busy serves as adaptive does", own=True)
def busy(_):
    with Fresh(poll="busy") as world:
        world.still_serves()

