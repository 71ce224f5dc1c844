#!/usr/bin/env python3
"""What an idle keep-alive connection costs Millrace in memory.

    ./run bench memory [--connections N]

(VmRSS + HugetlbPages) when sized for and holding N connections, minus the same when sized for and
holding one, by N. Both have answered N requests, so that the packet buffers that any traffic touches
are touched in both: with N connections one each, with one connection all of them. The difference has in
it what the packet pool grows by when it is sized for many; what one more connection costs is told
apart, from N / 2 to N. Into build/bench/memory.json.
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


def held(folder, connections, requests):
    with Setting(Sized, folder, connections=connections) as s:
        clients = []
        for _ in range(connections):
            client = Client(OURS, PORT)
            clients.append(client)
            for _ in range(requests // connections):
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
    n = args.connections
    with Folder() as folder:
        one, half, many = (held(folder, count, n) for count in (1, n // 2, n))
    each = (many - one) * 1024 / n
    one_more = (many - half) * 1024 / (n - n // 2)
    path = scene.save("memory.json", {**scene.header(), "connections": n,
                                      "resident_kib": {1: one, n // 2: half, n: many},
                                      "bytes_per_connection": round(each, 1),
                                      "bytes_one_more_connection": round(one_more, 1)})
    print(f"{each:.0f} bytes a connection, {one_more:.0f} for one more\n{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
