#!/usr/bin/env python3
"""The real binary on its embedded port, against curl, wrk, nginx and the kernel's TCP.

    run.py [--long] [--list] [--keep] [WORD ...]

Root. Everything runs in a network namespace of its own, so runs don't disturb each other or the
host. A WORD picks the cases whose name has it. Prints TAP.
"""

import argparse
import faulthandler
import os
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cases
import cases_bytes  # noqa: F401 the cases register themselves
import cases_duties  # noqa: F401
import cases_health  # noqa: F401
import cases_http  # noqa: F401
import cases_life  # noqa: F401
import cases_policies  # noqa: F401
import cases_port  # noqa: F401
import cases_proxied  # noqa: F401
import cases_reload  # noqa: F401
import cases_seeing  # noqa: F401
import cases_stalls  # noqa: F401
import cases_tls  # noqa: F401
import cases_wire  # noqa: F401
from proc import BINARY, Folder, enter_own_network
from world import World


class TooLong(Exception):
    pass


def on_alarm(*_):
    raise TooLong("the case took longer than it may")


class Scene:
    """The shared world, built when the first case needs it and again when one broke it."""

    def __init__(self):
        self.folder = Folder()
        self.path = self.folder.__enter__()
        self.count, self.world = 0, None

    def get(self):
        if self.world is not None and not self.world.proxy.alive():
            self.leave()
        if self.world is None:
            self.count += 1
            path = os.path.join(self.path, str(self.count))
            os.mkdir(path, 0o755)
            self.world = World(path)
        return self.world

    def leave(self):
        """Ends it; what is wrong about that, or None."""
        if self.world is None:
            return None
        world, self.world = self.world, None
        was_alive = world.proxy.alive()
        status = world.end()
        if was_alive and status == 0:
            return None
        return f"millrace ended with {status}:\n{world.proxy.output()[-4000:]}"

    def end(self, keep):
        if keep:
            print(f"# kept: {self.path}")
        else:
            self.folder.__exit__()


def run_case(function, argument, seconds):
    """None, or what went wrong."""
    signal.alarm(seconds)
    try:
        function(argument() if argument else None)
        return None
    except Exception as e:  # pylint: disable=broad-except
        where = traceback.extract_tb(e.__traceback__)
        frames = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(where[1:]))
        return f"{type(e).__name__}: {e}\nat {frames}"
    finally:
        signal.alarm(0)


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def case(self, name, wrong, seconds):
        self.count += 1
        self.failed += wrong is not None
        print(f"{'not ok' if wrong else 'ok'} {self.count} - {name} ({seconds:.1f} s)")
        if wrong:
            print("# " + wrong.replace("\n", "\n# "))
        sys.stdout.flush()


def parse():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--long", action="store_true", help="the cases that need minutes, and no other")
    p.add_argument("--list", action="store_true")
    p.add_argument("--keep", action="store_true", help="leave the files")
    p.add_argument("words", nargs="*", metavar="WORD")
    return p.parse_args()


def main():
    args = parse()
    chosen = [c for c in cases.ALL if c[2] == args.long
              and (not args.words or any(w in c[0] or w == c[1].__name__ for w in args.words))]
    if args.list:
        for name, function, *_ in chosen:
            print(f"{function.__name__:20} {name}")
        return 0
    if os.getuid() != 0:
        sys.exit("needs root")
    if not os.path.exists(BINARY):
        sys.exit(f"no {BINARY}: ./run build release")
    enter_own_network()
    faulthandler.enable()
    signal.signal(signal.SIGALRM, on_alarm)
    # Shared cases first, so that one scene serves them all; then those with their own.
    chosen.sort(key=lambda c: c[3])
    tap, scene = Tap(), Scene()
    try:
        for name, function, _, own, seconds in chosen:
            start = time.monotonic()
            if own:
                wrong = scene.leave()
                if wrong:
                    tap.case("the shared scene ends well", wrong, 0)
            wrong = run_case(function, None if own else scene.get, seconds)
            tap.case(name, wrong, time.monotonic() - start)
            if wrong and not own and scene.world and scene.world.proxy.alive():
                print(f"# log: {scene.world.proxy.output()[-1500:]}".replace("\n", "\n# "))
        wrong = scene.leave()
        if wrong:
            tap.case("the shared scene ends well", wrong, 0)
    finally:
        scene.leave()
        scene.end(args.keep)
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
