#!/usr/bin/env python3
"""What a storm of TLS handshakes does to those who are connected already.

    ./run bench storm [--rounds N] [--seconds N] [--proxies a,b,c] [--rate N] [--storm N]

250 plain and 250 TLS connections that are open send at a steady rate (an open loop, latency from when
a request was due): calm, and then while --storm new handshakes (default 2,000) are under way at any
time. What is told is the p99 of each kind, and how many handshakes were made beside.

On the clients' CPU those who measure, and the origin, go before the storm's own client (nice -15), and
that goes before Millrace's pool (nice 5), so that what is measured is the proxy. The proxies take turns
within each round. Into build/bench/storm.json and storm.svg.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scene
import tls_scene
from proc import Folder, enter_own_network
from scene import OURS, PORT, Setting, median
from tls_scene import HANDSHAKES, NAME, TLS_PORT, Certificate, client

WARM, FIRST = 250, -15


def steady(kind, args, out):
    words = [scene.RATE, OURS, str(TLS_PORT if kind == "tls" else PORT), "/", str(WARM),
             str(args.rate // 2), str(args.seconds)]
    if kind == "tls":
        words += ["tls", NAME]
    out[kind] = json.loads(client("nice", "-n", str(FIRST), *words, timeout=args.seconds + 120))


def warm(args, meanwhile=None):
    """{kind: what `rate` says}; `meanwhile` begins when the warm ones are connected."""
    out = {}
    threads = [threading.Thread(target=steady, args=(kind, args, out)) for kind in ("plain", "tls")]
    for t in threads:
        t.start()
    result = meanwhile() if meanwhile else None
    for t in threads:
        t.join()
    return out, result


def storm(args):
    time.sleep(1.5)  # the warm ones have shaken hands by then, and have sent for a while
    return json.loads(client(HANDSHAKES, OURS, str(TLS_PORT), NAME, str(args.storm),
                             str(args.seconds - 2), timeout=args.seconds + 60))


def measure(folder, args):
    certificate = Certificate(folder, "ecdsa")
    names, runs = args.proxies.split(","), []
    for number in range(args.rounds):
        k = number % len(names)
        for name in names[k:] + names[:k]:
            with Setting(tls_scene.KINDS[name], folder, certificate=certificate) as s:
                for pid in tls_scene.tree(s.origin.pid):
                    os.setpriority(os.PRIO_PROCESS, pid, FIRST)
                calm, _ = warm(args)
                storming, made = warm(args, lambda: storm(args))
            run = {"proxy": name, "round": number + 1, "handshakes": made}
            for kind in ("plain", "tls"):
                run[f"{kind}_calm_p99_us"] = calm[kind]["p99_us"]
                run[f"{kind}_storm_p99_us"] = storming[kind]["p99_us"]
                run[f"{kind}_calm"], run[f"{kind}_storm"] = calm[kind], storming[kind]
            run["errors"] = sum(c[k]["errors"] for c in (calm, storming) for k in c)
            runs.append(run)
            print(f"{name:9} round {number + 1}: p99 us plain {run['plain_calm_p99_us']:.0f} -> "
                  f"{run['plain_storm_p99_us']:.0f}, TLS {run['tls_calm_p99_us']:.0f} -> "
                  f"{run['tls_storm_p99_us']:.0f}; {made['per_second']:.0f} handshakes/s, p99 "
                  f"{made['p99_us'] / 1e3:.0f} ms, {made['errors']} failed; errors {run['errors']}",
                  flush=True)
    return runs


def summary(runs):
    out = {}
    for name in dict.fromkeys(r["proxy"] for r in runs):
        mine = [r for r in runs if r["proxy"] == name]
        out[name] = {key: median([r[key] for r in mine]) for key in mine[0] if key.endswith("p99_us")}
        out[name]["handshakes_per_second"] = median([r["handshakes"]["per_second"] for r in mine])
        out[name]["errors"] = sum(r["errors"] for r in mine)
    return out


PLOT = """
set terminal svg size 900,420 background "white"
set output "{out}"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set logscale y
set grid y
set key top left
set ylabel "p99 of warm connections, us"
plot "{data}" using 2:xtic(1) title "plain, calm" lc rgb "#aaccee", \\
     "{data}" using 3 title "plain, in the storm" lc rgb "#4477aa", \\
     "{data}" using 4 title "TLS, calm" lc rgb "#eeaabb", \\
     "{data}" using 5 title "TLS, in the storm" lc rgb "#cc6677"
"""


def plot(medians, folder):
    out = os.path.join(scene.ROOT, "build", "bench", "storm.svg")
    keys = [f"{kind}_{when}_p99_us" for kind in ("plain", "tls") for when in ("calm", "storm")]
    data = scene.write(folder, "plot.dat", "".join(
        f"{name} {' '.join(str(m[key]) for key in keys)}\n" for name, m in medians.items()))
    script = scene.write(folder, "plot.gp", PLOT.format(out=out, data=data))
    subprocess.run(["gnuplot", script], check=True)
    return out


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--proxies", default=",".join(tls_scene.KINDS))
    p.add_argument("--rate", type=int, default=4000, help="requests/s of all warm connections")
    p.add_argument("--storm", type=int, default=2000, help="handshakes under way at any time")
    args = p.parse_args()
    for name in args.proxies.split(","):
        if name not in tls_scene.KINDS:
            p.error(f"no proxy {name}")
    if args.seconds < 4:
        p.error("--seconds: 4 at the least")
    return args


def main():
    args = parse()
    enter_own_network()
    with Folder() as folder:
        runs = measure(folder, args)
        medians = summary(runs)
        path = scene.save("storm.json", {
            **scene.header(), "warm_connections": 2 * WARM, "rate": args.rate, "storm": args.storm,
            "seconds": args.seconds, "rounds": args.rounds, "median": medians, "runs": runs})
        picture = plot(medians, folder)
    print(f"{path}\n{picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
