"""Cores that misbehave, and how that is seen. On the debug build, which has verbs for it."""

import json
import os
import signal
import socket
import threading
import time

from cases import case
from proc import BINARY, ROOT, Folder, Millrace, check, equal, sh, until
from raw import Client
from world import OURS, SMALL, write_config

DEBUG = os.environ.get("MILLRACE_DEBUG",
                       os.path.join(ROOT, "build", "dev", "control", "millrace"))
CONNECTIONS = 48
BLOCK_MS = 200


class Debug:
    """A debug build with two cores and a queue each, taken down whatever happens."""

    def __enter__(self):
        check(os.path.exists(DEBUG), f"no {DEBUG}: ./run build dev")
        self.folder = Folder()
        path = self.folder.__enter__()
        self.proxy = Millrace(write_config(path, cores="0, 1", queues="2"), path, wait=60,
                              binary=DEBUG)
        return self.proxy

    def __exit__(self, *_):
        self.proxy.end(20)
        self.folder.__exit__()


def misbehave(proxy, how="compute", ms=BLOCK_MS):
    """Has core 0 do so; the command has no word for it. The answer; None: it ended before."""
    order = {"verb": "misbehave", "core": 0, "how": how, "ms": ms}
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(proxy.socket)
        s.sendall(json.dumps(order).encode() + b"\n")
        line = s.makefile().readline()
        return json.loads(line) if line else None


def stalls(proxy, kind):
    """[(core, stall)] of that kind."""
    answer = json.loads(proxy.admin("stalls", "--json")[1])
    return [(core["core"], stall) for core in answer["cores"] for stall in core["stalls"]
            if stall["kind"] == kind]


def ask_on(times, stop):
    """One connection asking again and again; [(when, seconds)]. Answered on the spot: 404."""
    with Client(OURS, SMALL, timeout=20) as c:
        while not stop.is_set():
            start = time.monotonic()
            equal(c.send("GET /none HTTP/1.1\nHost: a\n\n").answer().status, 404, "status")
            times.append((start, time.monotonic() - start))
            stop.wait(0.005)


def worst(times, since, until_):
    return max((took for when, took in times if when + took >= since and when <= until_),
               default=0)


@case("a task that blocks its core shows in `millrace stalls`; the other core goes on", own=True,
      seconds=180)
def block(_):
    with Debug() as proxy:
        stop, all_times = threading.Event(), [[] for _ in range(CONNECTIONS)]
        threads = [threading.Thread(target=ask_on, args=(t, stop)) for t in all_times]
        for t in threads:
            t.start()
        until(lambda: all(len(t) >= 100 for t in all_times), 30, "every connection is served")
        began = time.monotonic()
        check(misbehave(proxy)["ok"], "the order is taken")
        until(lambda: any(not s["running"] for _, s in stalls(proxy, "misbehaviour")), 20,
              "the stall is recorded", pause=0.05)
        stop.set()
        for t in threads:
            t.join()
        core, stall = stalls(proxy, "misbehaviour")[0]
        equal(core, 0, "its core")
        equal(stall["label"], "on purpose", "its label")
        check(BLOCK_MS <= stall["took_ns"] / 1e6 < 3 * BLOCK_MS, f"took {stall['took_ns']}")
        functions = [f.get("function") for f in stall["frames"]]
        check("misbehave_poll" in functions and "sched_step" in functions, f"frames: {functions}")
        check(any(f in ("compute", "clock_now_ns") for f in functions), f"frames: {functions}")
        text = proxy.admin("stalls")[1]
        check("misbehaviour" in text and "misbehave_poll" in text and "on purpose" in text, text)
        # A connection is the other core's, frames and all, when it felt nothing. How much the rest
        # of the machine gave that core isn't ours to assert.
        felt = [worst(t, began, began + 0.3) for t in all_times]
        free = [t for t, f in zip(all_times, felt) if f < BLOCK_MS / 2000]
        check(0 < len(free) < CONNECTIONS, f"{len(free)} connections felt nothing: {felt}")
        before = sorted(took for t in free for when, took in t if began - 1 < when < began - 0.3)
        during = sorted(took for t in free for when, took in t if began <= when < began + 0.2)
        for name, times in (("before", before), ("during", during)):
            print(f"# the other core's requests {name} the block: {len(times)}, "
                  f"median {times[len(times) // 2] * 1e3:.1f} ms, "
                  f"p99 {times[len(times) * 99 // 100] * 1e3:.1f} ms, max {times[-1] * 1e3:.1f} ms")
        kinds = {k["kind"]: k for k in proxy.status()["cores"][0]["tasks"]["kinds"]}
        equal(kinds["misbehaviour"]["stalls"], 1, "stalls of the kind")
        check(kinds["misbehaviour"]["poll"]["max_ns"] >= BLOCK_MS * 1e6, f"{kinds}")


@case("a core that hangs is seen while it does, and ends the process with what all cores did",
      own=True, seconds=120)
def hang(_):
    with Debug() as proxy:
        check(misbehave(proxy, ms=60000)["ok"], "the order is taken")
        until(lambda: any(s["running"] and s["frames"] for _, s in stalls(proxy, "misbehaviour")),
              2, "the stall shows while it lasts", pause=0.02)
        equal(proxy.wait(20), -signal.SIGABRT, "exit status")
        said = proxy.output()
        for words in ("core 0: ", "in a task of kind misbehaviour, label on purpose", "core 1: ",
                      "core 0 was at ", "has been stuck for 2 s: aborting"):
            check(words in said, lambda: f"not in the log: {words}\n{said[-3000:]}")


@case("a blocking call on a core ends a debug build, which names call and task", own=True,
      seconds=120)
def trap(_):
    with Debug() as proxy:
        misbehave(proxy, how="sleep")
        equal(proxy.wait(20), -signal.SIGABRT, "exit status")
        said = proxy.output()
        check('a core must not block: clock_nanosleep() in task "misbehaviour" '
              '(label "on purpose") on core/0' in said, lambda: said[-3000:])
        check("control/millrace+0x" in said, lambda: said[-3000:])


@case("a release build knows none of the debug verbs")
def release(world):
    check("unknown verb" in misbehave(world.proxy)["error"], "misbehave is refused")
    for word in ("misbehave", "misbehaviour", "must not block"):
        equal(sh("grep", "-c", word, BINARY, ok=False)[0], 1, f"{word} in the binary")
    # What is there in every build.
    answer = json.loads(world.proxy.admin("stalls", "--json")[1])
    equal([c["core"] for c in answer["cores"]], [0], "cores")
