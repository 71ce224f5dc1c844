#!/usr/bin/env python3
"""What the runtime's own moves cost, and the same on Tokio's current_thread runtime.

    ./run bench runtime [--rounds N] [--only NAME,NAME...] [--no-tokio]

The two programs take turns, each round beginning with the other one. A round's value is the median
of the samples that the program took; told are the median of the rounds, and their least and most. Into
build/bench/runtime.json and runtime.svg.
"""

import argparse
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import scene
from proc import Folder, check
from scene import ROOT, median

OURS = os.path.join(ROOT, "build", "release", "bench", "micro_runtime")
TOKIO = os.path.join(ROOT, "build", "tokio", "target", "release", "tokio-bench")
TWO_CORES = ("mpsc_cores", "permit_cores", "blocking_spun", "blocking_parked")
BYTES = ("parked_bytes",)
# What must be this many times faster than Tokio (the runtime's goal).
GOALS = {"spawn_finish": 5, "wake_poll": 5, "timer": 5, "mpsc": 5}


def say(text):
    print(text, flush=True)


def build_tokio():
    """Cargo writes beside the sources, so it gets a copy. Returns the versions used."""
    folder = os.path.join(ROOT, "build", "tokio")
    shutil.copytree(os.path.join(ROOT, "bench", "compare", "tokio"), folder, dirs_exist_ok=True)
    log = os.path.join(folder, "build.log")
    with open(log, "w", encoding="utf-8") as f:
        done = subprocess.run(["cargo", "build", "--release", "--offline"], cwd=folder, stdout=f,
                              stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        with open(log, encoding="utf-8") as f:
            sys.stdout.write(f.read())
    check(done.returncode == 0, "Tokio's side did not compile")
    with open(os.path.join(folder, "Cargo.lock"), encoding="utf-8") as f:
        names = f.read().split("[[package]]")
    tokio = next(p.split('version = "')[1].split('"')[0] for p in names if 'name = "tokio"' in p)
    return {"tokio": tokio, "rustc": scene.first_line("rustc", "--version"),
            "cc": scene.first_line("cc", "--version")}


def run(program, names, cpus):
    """{name: (text, ns)} of one run."""
    done = subprocess.run([program, "--raw", "--cpus", cpus, *names], stdout=subprocess.PIPE, check=True)
    out = {}
    for line in done.stdout.decode().splitlines():
        name, text, samples = line.split("\t")
        out[name] = text, median([float(s) for s in samples.split()])
    return out


def known(program):
    done = subprocess.run([program, "--list"], stdout=subprocess.PIPE, check=True)
    return [line.split("\t")[0] for line in done.stdout.decode().splitlines()]


def measure(args, sides, cpus):
    """[{side: {name: (text, ns)}}], one a round."""
    wanted = {}
    for side, program in sides.items():
        wanted[side] = [n for n in known(program) if not args.only or n in args.only]
        if cpus[0] == cpus[1]:
            wanted[side] = [n for n in wanted[side] if n not in TWO_CORES]
    rounds = []
    for number in range(args.rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        got = {side: run(sides[side], wanted[side], f"{cpus[0]},{cpus[1]}")
               for side in order if wanted[side]}
        rounds.append(got)
        say(f"round {number + 1} of {args.rounds}: {', '.join(order)}")
    return rounds


def side_summary(rounds, side, name):
    each = [r[side][name][1] for r in rounds if side in r and name in r[side]]
    if not each:
        return None
    return {"median": round(median(each), 2), "min": min(each), "max": max(each), "rounds": each}


def summary(rounds):
    out = []
    for name, (text, _) in rounds[0]["millrace"].items():
        row = {"name": name, "text": text, "unit": "bytes" if name in BYTES else "ns",
               "millrace": side_summary(rounds, "millrace", name),
               "tokio": side_summary(rounds, "tokio", name)}
        if row["tokio"]:
            row["times"] = round(row["tokio"]["median"] / row["millrace"]["median"], 2)
        if name in GOALS:
            row["goal"] = GOALS[name]
        out.append(row)
    return out


PLOT = """
set terminal svg size 1000,460 background "white" noenhanced
set output "{out}"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.8 border -1
set logscale y
set yrange [0.1:*]
set rmargin 10
set grid y
set ylabel "ns each (the last one: bytes)"
set xtics rotate by -35
set key top left
set title "The runtime's moves, medians of {rounds} rounds"
plot "{data}" using 2:xtic(1) title "Millrace" lc rgb "#4477aa", \\
     "{data}" using 3 title "Tokio {tokio}, current_thread" lc rgb "#cc6677"
"""


def plot(rows, args, version, folder):
    """Those that both have."""
    both = [r for r in rows if r["tokio"]]
    both.sort(key=lambda r: r["unit"] == "bytes")
    if not both:
        return None
    out = os.path.join(ROOT, "build", "bench", "runtime.svg")
    data = scene.write(folder, "plot.dat", "".join(
        f"\"{r['name'].replace('_', ' ')}\" {r['millrace']['median']} {r['tokio']['median']}\n"
        for r in both))
    script = scene.write(folder, "plot.gp",
                         PLOT.format(out=out, data=data, rounds=args.rounds, tokio=version))
    subprocess.run(["gnuplot", script], check=True)
    return out


def spread(side):
    if not side:
        return f"{'-':>10} {'':19}"
    return f"{side['median']:10.1f} {side['min']:9.1f} {side['max']:9.1f}"


def table(rows):
    say(f"{'':50} {'Millrace':>10} {'least':>9} {'most':>9} {'Tokio':>10} {'least':>9} {'most':>9}"
        f" {'times':>6}")
    for r in rows:
        times = f"{r['times']:6.1f}" if "times" in r else f"{'':6}"
        goal = f"  (goal {r['goal']})" if "goal" in r else ""
        say(f"{r['text']:50} {spread(r['millrace'])} {spread(r['tokio'])} {times}{goal}")


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", type=lambda v: v.split(","), default=[])
    p.add_argument("--no-tokio", action="store_true")
    args = p.parse_args()
    if args.rounds < 1:
        p.error("at least one round")
    for name in args.only:
        if name not in known(OURS):
            p.error(f"no measure {name}; there are: {' '.join(known(OURS))}")
    return args


def main():
    args = parse()
    versions = {"cc": scene.first_line("cc", "--version")}
    sides = {"millrace": OURS}
    if not args.no_tokio:
        versions = build_tokio()
        sides["tokio"] = TOKIO
    usable = sorted(os.sched_getaffinity(0))
    cpus = usable[-1], usable[0]
    rounds = measure(args, sides, cpus)
    rows = summary(rounds)
    head = {**scene.header(), "versions": versions}
    head["machine"] = {k: v for k, v in head["machine"].items() if not k.endswith("_cpu")}
    path = scene.save("runtime.json", {**head, "cpus": cpus, "rounds": args.rounds, "measures": rows})
    table(rows)
    say(path)
    with Folder() as folder:
        picture = plot(rows, args, versions.get("tokio", ""), folder)
    if picture:
        say(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
