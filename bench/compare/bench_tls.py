#!/usr/bin/env python3
"""TLS beside HAProxy and nginx, on the same OpenSSL.

    ./run bench tls [--rounds N] [--seconds N] [--proxies a,b,c] [--only NAME,NAME...]

    ecdsa, rsa   full handshakes of TLS 1.3 (P-256, RSA-2048), 64 under way at any time
    resumed      the same with tickets
    warm         requests a second on 64 connections that stay, closed loop
    bulk         a body of 64 MiB, again and again, on four connections
    memory       an idle connection that has had a request, of 4,000

A value by CPU second counts all of a proxy's threads: Millrace's pool too. Not counted is what the
kernel receives on a peer's behalf in an interrupt. The proxies take turns within each round. Into
build/bench/tls.json and tls.svg.
"""

import argparse
import json
import os
import re
import ssl
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import socket

import scene
import tls_scene
from proc import Folder, check, enter_own_network
from scene import OURS, Setting, median
from tls_scene import HANDSHAKES, NAME, TLS_PORT, Certificate, Spent, client

CONNECTIONS, IDLE = 64, 4000
BULK_MIB = 64


def handshakes(s, args, *options):
    with Spent(s.proxy) as spent:
        out = client(HANDSHAKES, OURS, str(TLS_PORT), NAME, str(CONNECTIONS), str(args.seconds),
                     *options, timeout=args.seconds + 60)
    got = json.loads(out)
    n = got["full"] + got["resumed"]
    return {"per_second": got["per_second"], "per_cpu_second": round(n / max(spent.cpu, 1e-3), 1),
            "p50_us": got["p50_us"], "p99_us": got["p99_us"], "errors": got["errors"],
            "resumed_share": round(got["resumed"] / max(n, 1), 4), "cipher": got["cipher"]}


def ecdsa(s, args):
    return handshakes(s, args)


def resumed(s, args):
    return handshakes(s, args, "resume")


def wrk(s, args, connections, path):
    with Spent(s.proxy) as spent:
        out = client("wrk", "-t", "1", "-c", str(connections), "-d", f"{args.seconds}s", "--latency",
                     f"https://{OURS}:{TLS_PORT}{path}", timeout=args.seconds + 60)
    count = int(re.search(r"(\d+) requests in", out).group(1))
    errors = sum(int(n) for line in re.findall(r"Socket errors:(.*)", out)
                 for n in re.findall(r"\d+", line))
    errors += sum(int(n) for n in re.findall(r"Non-2xx or 3xx responses: (\d+)", out))
    return count, errors, spent


def warm(s, args):
    count, errors, spent = wrk(s, args, CONNECTIONS, "/")
    return {"per_second": round(count / spent.seconds, 1), "errors": errors,
            "per_cpu_second": round(count / max(spent.cpu, 1e-3), 1)}


def bulk(s, args):
    with open(os.path.join(s.folder, "files", "bulk"), "wb") as f:
        f.write(os.urandom(1 << 20) * BULK_MIB)
    count, errors, spent = wrk(s, args, 4, "/bulk")
    bits = count * BULK_MIB * (1 << 20) * 8
    return {"per_second": round(bits / spent.seconds / 1e9, 3), "errors": errors,
            "per_cpu_second": round(bits / max(spent.cpu, 1e-3) / 1e9, 3)}


def resident_kib(proxy):
    total = 0
    for pid in tls_scene.tree(proxy.pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            found = re.findall(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB", f.read(), re.M)
        total += sum(int(v) for v in found)
    return total


def idle_connection(context):
    c = context.wrap_socket(socket.create_connection((OURS, TLS_PORT)), server_hostname=NAME)
    c.sendall(f"GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n".encode())
    check(c.recv(65536).startswith(b"HTTP/1.1 200"), "no answer")
    return c


def memory(s, _args):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    kept = [idle_connection(context) for _ in range(IDLE // 2)]
    time.sleep(2)
    half = resident_kib(s.proxy)
    kept += [idle_connection(context) for _ in range(IDLE - IDLE // 2)]
    time.sleep(2)
    whole = resident_kib(s.proxy)
    for c in kept:
        c.close()
    return {"bytes": round((whole - half) * 1024 / (IDLE - IDLE // 2)), "errors": 0}


# Name: what measures it, the certificate, the figure that is compared, its unit.
MEASURES = {
    "ecdsa": (ecdsa, "ecdsa", "per_cpu_second", "full handshakes a CPU second, ECDSA P-256"),
    "rsa": (ecdsa, "rsa", "per_cpu_second", "full handshakes a CPU second, RSA-2048"),
    "resumed": (resumed, "ecdsa", "per_cpu_second", "resumed handshakes a CPU second"),
    "warm": (warm, "ecdsa", "per_second", "requests/s on warm connections"),
    "bulk": (bulk, "ecdsa", "per_cpu_second", "Gbit a CPU second"),
    "memory": (memory, "ecdsa", "bytes", "bytes of an idle connection"),
}


def measure(folder, args):
    certificates = {kind: Certificate(folder, kind) for kind in ("ecdsa", "rsa")}
    names, runs = args.proxies.split(","), []
    for number in range(args.rounds):
        k = number % len(names)
        for what in args.only.split(","):
            run, kind, figure, _ = MEASURES[what]
            for name in names[k:] + names[:k]:
                with Setting(tls_scene.KINDS[name], folder, certificate=certificates[kind]) as s:
                    got = run(s, args)
                runs.append({"proxy": name, "round": number + 1, "measure": what, **got})
                print(f"{what:8} {name:9} round {number + 1}: {got[figure]:>10} "
                      f"{json.dumps({k: v for k, v in got.items() if k != figure})}", flush=True)
    return runs


def summary(runs):
    out = {}
    for r in runs:
        out.setdefault(r["measure"], {}).setdefault(r["proxy"], []).append(r)
    return {what: {name: {key: median([r[key] for r in mine]) for key in mine[0]
                          if isinstance(mine[0][key], (int, float)) and key != "round"}
                   for name, mine in by_name.items()} for what, by_name in out.items()}


PLOT = """
set terminal svg size 1100,640 background "white"
set output "{out}"
set style data histograms
set style fill solid 0.8 border -1
set boxwidth 0.8
set yrange [0:*]
set grid y
unset key
set multiplot layout 2,3
{plots}
unset multiplot
"""


def plot(medians, folder):
    out, plots = os.path.join(scene.ROOT, "build", "bench", "tls.svg"), []
    for what, by_name in medians.items():
        data = scene.write(folder, f"{what}.dat", "".join(
            f"{name} {m[MEASURES[what][2]]}\n" for name, m in by_name.items()))
        plots.append(f'set title "{MEASURES[what][3]}"\n'
                     f'plot "{data}" using 2:xtic(1) lc rgb "#4477aa"')
    script = scene.write(folder, "plot.gp", PLOT.format(out=out, plots="\n".join(plots)))
    subprocess.run(["gnuplot", script], check=True)
    return out


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=5)
    p.add_argument("--proxies", default=",".join(tls_scene.KINDS))
    p.add_argument("--only", default=",".join(MEASURES))
    args = p.parse_args()
    for given, known in ((args.proxies, tls_scene.KINDS), (args.only, MEASURES)):
        for name in given.split(","):
            if name not in known:
                p.error(f"no {name}: {', '.join(known)}")
    return args


def main():
    args = parse()
    enter_own_network()
    with Folder() as folder:
        runs = measure(folder, args)
        medians = summary(runs)
        path = scene.save("tls.json", {**scene.header(), "connections": CONNECTIONS,
                                       "seconds": args.seconds, "rounds": args.rounds,
                                       "openssl": ssl.OPENSSL_VERSION, "median": medians,
                                       "runs": runs})
        picture = plot(medians, folder)
    for what, by_name in medians.items():
        print(MEASURES[what][3] + ": " + ", ".join(
            f"{name} {m[MEASURES[what][2]]:.4g}" for name, m in by_name.items()))
    print(f"{path}\n{picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
