#!/usr/bin/env python3
"""What an idle keep-alive connection costs Millrace in memory.

    ./run bench memory [--connections N]

(VmRSS + HugetlbPages) when sized for and holding N connections, minus the same when sized for and
holding one, by N. Every connection has carried one request. Into build/bench/memory.json.
"""

import argparse
import os
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scene
from proc import Folder, check, enter_own_network, numbers
from raw import Client
from scene import OURS, PORT, MillraceProxy, Setting


class Sized(MillraceProxy):
    """Millrace for just so many connections."""

    def __init__(self, folder, connections):
        config = scene.fill(scene.MILLRACE, folder, poll="adaptive", extra="")
        # A few beyond: the origin's pooled ones, and the port's probe.
        config = config.replace("runtime: { ", f"runtime: {{ connections: {connections + 16}, ")
        config = config.replace("address: 10.77.0.1:8080",
                                f"address: 10.77.0.1:8080\n    limits: {{ connections: {connections} }}")
        self.process = scene.Millrace(scene.write(folder, "millrace.yaml", config), folder,
                                      cpus=str(scene.REST_CPU))
        self.pid = self.process.pid


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        found = dict(re.findall(r"^(VmRSS|HugetlbPages):\s+(\d+) kB", f.read(), re.M))
    return sum(int(v) for v in found.values())


def held(folder, connections):
    with Setting(Sized, folder, connections=connections) as s:
        clients = []
        for _ in range(connections):
            client = Client(OURS, PORT)
            clients.append(client)
            a = client.send("GET / HTTP/1.1\nHost: a\n\n").answer()
            check(a.status == 200, f"{a}")
        time.sleep(2)  # the memory of a request that has just ended is not the connection's
        got = numbers(s.proxy.process.status(), "clients")
        check(got == connections, f"{got} connections held, not {connections}")
        kib = resident_kib(s.proxy.pid)
        for client in clients:
            client.close()
        print(f"sized for and holding {connections}: {kib} KiB", flush=True)
        return kib


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--connections", type=int, default=10000)
    args = p.parse_args()
    check(args.connections + 100 < min(scene.HARD, 28000), "not so many files or ports")
    enter_own_network()
    with Folder() as folder:
        one, many = held(folder, 1), held(folder, args.connections)
    each = (many - one) * 1024 / args.connections
    path = scene.save("memory.json", {**scene.header(), "connections": args.connections,
                                      "resident_kib": {"1": one, str(args.connections): many},
                                      "bytes_per_connection": round(each, 1)})
    print(f"{each:.0f} bytes a connection\n{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
