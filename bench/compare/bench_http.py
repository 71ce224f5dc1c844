#!/usr/bin/env python3
"""Millrace, HAProxy and nginx side by side: peak rate, and CPU per request at one fixed rate.

    ./run bench http [--rounds N] [--seconds N] [--proxies a,b,c] [--poll adaptive|busy]
                     [--other BINARY]

Peak: wrk, 64 keep-alive connections, closed loop. CPU per request: an open loop at half of
HAProxy's median peak; the proxy core's non-idle time (Millrace: its busy passes) plus the other
core's softirq time beyond what a direct client-to-origin run at the same rate takes. The proxies
take turns within each round. The proxy `other` is another build of Millrace, for what a change has
cost: --other BINARY --proxies millrace,other. Into build/bench/http.json and http.svg.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scene
from proc import Folder, check, enter_own_network, sh
from scene import (PROXY_CPU, REST_CPU, CpuTimes, Direct, HaproxyProxy, MillraceProxy, NginxProxy,
                   OtherMillrace, Setting, median)

CONNECTIONS = 64
KINDS = {"millrace": MillraceProxy, "haproxy": HaproxyProxy, "nginx": NginxProxy, "direct": Direct,
         "other": OtherMillrace}
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def wrk(target, seconds):
    """(requests/s, p50 in us, p99 in us, errors)."""
    _, out, _ = sh("taskset", "-c", str(REST_CPU), "wrk", "-t", "1", "-c", str(CONNECTIONS), "-d",
                   f"{seconds}s", "--latency", f"http://{target[0]}:{target[1]}/",
                   timeout=seconds + 60)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))
    quantiles = {q: float(v) * UNITS[u] for q, v, u in
                 re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", out, re.M)}
    errors = sum(int(n) for line in re.findall(r"Socket errors:(.*)", out)
                 for n in re.findall(r"\d+", line))
    errors += sum(int(n) for n in re.findall(r"Non-2xx or 3xx responses: (\d+)", out))
    return rate, quantiles["50"], quantiles["99"], errors


def open_loop(target, rate, seconds):
    _, out, _ = sh("taskset", "-c", str(REST_CPU), scene.RATE, target[0], str(target[1]), "/",
                   str(CONNECTIONS), str(int(rate)), str(seconds), timeout=seconds + 60)
    return json.loads(out)


class Meter:
    """What CPU time passed while the block ran."""

    def __init__(self, proxy):
        self.proxy = proxy

    def read(self):
        # The verb that asks Millrace costs the other core a little: outside of the two readings.
        return self.proxy.busy_seconds(), CpuTimes(PROXY_CPU), CpuTimes(REST_CPU), time.monotonic()

    def __enter__(self):
        self.before = self.read()
        return self

    def __exit__(self, *_):
        after = self.read()
        self.proxy_busy = after[0] - self.before[0]
        self.proxy_core_busy = after[1].busy - self.before[1].busy
        self.rest_softirq = after[2].softirq - self.before[2].softirq
        self.rest_busy = after[2].busy - self.before[2].busy
        self.seconds = after[3] - self.before[3]


def peak(kind, folder, args):
    with Setting(kind, folder, **options(kind, args)) as s:
        wrk(s.target, 2)
        with Meter(s.proxy) as m:
            rps, p50, p99, errors = wrk(s.target, args.seconds)
    return {"rps": round(rps, 1), "p50_us": p50, "p99_us": p99, "errors": errors,
            "peak_proxy_busy": round(m.proxy_busy / m.seconds, 3),
            "peak_rest_busy": round(m.rest_busy / m.seconds, 3)}


def fixed(kind, folder, args, rate):
    with Setting(kind, folder, **options(kind, args)) as s:
        open_loop(s.target, rate, 2)
        with Meter(s.proxy) as m:
            got = open_loop(s.target, rate, args.seconds)
    check(got["answered"] > 0, f"{kind.name} answered nothing at {rate:.0f}/s")
    return {"answered": got["answered"], "proxy_s": m.proxy_busy, "softirq_s": m.rest_softirq,
            "rate_rps": got["rps"], "rate_p50_us": got["p50_us"], "rate_p99_us": got["p99_us"],
            "rate_errors": got["errors"]}


def options(kind, args):
    if kind is OtherMillrace:
        return {"poll": args.poll, "binary": args.other}
    return {"poll": args.poll} if kind is MillraceProxy else {}


def say(text):
    print(text, flush=True)


def measure(folder, args):
    names = args.proxies.split(",")
    runs = []
    for number in range(args.rounds):
        for name in turn(names, number):
            runs.append({"proxy": name, "round": number + 1, **peak(KINDS[name], folder, args)})
            r = runs[-1]
            say(f"peak  {name:9} round {number + 1}: {r['rps']:9.0f}/s  p50 {r['p50_us']:.0f} us  "
                f"p99 {r['p99_us']:.0f} us  errors {r['errors']}")
    half_of = "haproxy" if "haproxy" in names else names[0]
    rate = args.rate or median([r["rps"] for r in runs if r["proxy"] == half_of]) / 2
    say(f"fixed rate: {rate:.0f}/s")
    direct = []
    for number in range(args.rounds):
        direct.append(fixed(Direct, folder, args, rate))
        floor = direct[-1]["softirq_s"] / direct[-1]["answered"]
        for name in turn(names, number):
            f = fixed(KINDS[name], folder, args, rate)
            extra = max(0.0, f["softirq_s"] / f["answered"] - floor)
            own = f["proxy_s"] / f["answered"]
            run = next(r for r in runs if r["proxy"] == name and r["round"] == number + 1)
            run.update(cpu_us_per_request=round((own + extra) * 1e6, 3),
                       proxy_core_us_per_request=round(own * 1e6, 3),
                       softirq_us_per_request=round(extra * 1e6, 3),
                       **{k: v for k, v in f.items() if k.startswith("rate_")})
            say(f"fixed {name:9} round {number + 1}: {run['cpu_us_per_request']:6.2f} us/request "
                f"(core {own * 1e6:.2f}, softirq {extra * 1e6:.2f})  p50 {f['rate_p50_us']:.0f} us  "
                f"p99 {f['rate_p99_us']:.0f} us  errors {f['rate_errors']}")
    return runs, rate, direct


def turn(names, number):
    """Each round begins with another proxy, so that none always runs on a warm or a cold machine."""
    k = number % len(names)
    return names[k:] + names[:k]


def summary(runs):
    out = {}
    for name in dict.fromkeys(r["proxy"] for r in runs):
        mine = [r for r in runs if r["proxy"] == name]
        out[name] = {key: median([r[key] for r in mine])
                     for key in ("rps", "p50_us", "p99_us", "cpu_us_per_request", "rate_p50_us",
                                 "rate_p99_us")}
        out[name]["errors"] = sum(r["errors"] + r["rate_errors"] for r in mine)
    return out


PLOT = """
set terminal svg size 900,360 background "white"
set output "{out}"
set style data histograms
set style fill solid 0.8 border -1
set boxwidth 0.8
set yrange [0:*]
set grid y
unset key
set multiplot layout 1,3
set title "requests/s at the peak"
plot "{data}" using 2:xtic(1) lc rgb "#4477aa"
set title "CPU per request, us"
plot "{data}" using 3:xtic(1) lc rgb "#cc6677"
set title "p99 at the fixed rate, us"
plot "{data}" using 4:xtic(1) lc rgb "#228833"
unset multiplot
"""


def plot(medians, folder):
    out = os.path.join(scene.ROOT, "build", "bench", "http.svg")
    data = scene.write(folder, "plot.dat", "".join(
        f"{name} {m['rps']} {m['cpu_us_per_request']} {m['rate_p99_us']}\n"
        for name, m in medians.items()))
    script = scene.write(folder, "plot.gp", PLOT.format(out=out, data=data))
    subprocess.run(["gnuplot", script], check=True)
    return out


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=10)
    p.add_argument("--rate", type=float, default=0, help="fixed rate; default half HAProxy's peak")
    p.add_argument("--proxies", default="millrace,haproxy,nginx")
    p.add_argument("--poll", default="adaptive", choices=("adaptive", "busy"))
    p.add_argument("--other", metavar="BINARY", help="the build that the proxy `other` runs")
    args = p.parse_args()
    if ("other" in args.proxies.split(",")) != bool(args.other):
        p.error("--other BINARY and --proxies ...,other come together")
    for name in args.proxies.split(","):
        if name not in KINDS:
            p.error(f"no proxy {name}")
    return args


def main():
    args = parse()
    enter_own_network()
    with Folder() as folder:
        runs, rate, direct = measure(folder, args)
        medians = summary(runs)
        path = scene.save("http.json", {
            **scene.header(), "connections": CONNECTIONS, "seconds": args.seconds,
            "rounds": args.rounds, "fixed_rate": round(rate, 1), "poll": args.poll,
            "median": medians, "runs": runs, "direct": direct})
        picture = plot(medians, folder)
    say(f"{'':9} {'peak/s':>9} {'p50 us':>7} {'p99 us':>7} {'CPU us/request':>15} {'errors':>7}")
    for name, m in medians.items():
        say(f"{name:9} {m['rps']:9.0f} {m['p50_us']:7.0f} {m['p99_us']:7.0f} "
            f"{m['cpu_us_per_request']:15.2f} {m['errors']:7.0f}")
    say(f"{path}\n{picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
