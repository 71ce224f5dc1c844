#!/usr/bin/env python3
"""Holds the tree to the house's rules. Every rule is a module with NAME and run(ctx).

    lint.py [--root DIR] [--plain BUILD] [--jobs N] [--tidy-seconds N] [--list] [RULE ...]

Prints the findings and one line a rule, then `N passed, N failed` over the rules. A finding can be
excused by a line in waivers.txt; a waiver that excuses nothing is a finding itself.
"""

import argparse
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import rule_blocking
import rule_codes
import rule_examples
import rule_format
import rule_headers
import rule_includes
import rule_links
import rule_sizes
import rule_tidy
import rule_words
from findings import Finding, WaiverError, excuse, load_waivers
from tree import tracked_files

RULES = [rule_includes, rule_sizes, rule_words, rule_links, rule_codes, rule_examples, rule_format, rule_headers,
         rule_blocking, rule_tidy]


class Context:
    def __init__(self, root, plain_build, jobs, tidy_seconds):
        self.root = os.path.abspath(root)
        self.plain_build = os.path.abspath(plain_build)
        self.jobs = jobs
        self.tidy_seconds = tidy_seconds
        self.files = tracked_files(self.root)


def stale_waivers(waivers, used, rule):
    path = os.path.join("tests", "lint", "waivers.txt")
    for w in waivers:
        if w.rule == rule and w not in used:
            yield Finding(rule, path, w.line, w.what, f"waiver for {w.path} excuses nothing")


def run_rule(rule, ctx, waivers):
    left, used = excuse(list(rule.run(ctx)), waivers)
    return left + list(stale_waivers(waivers, used, rule.NAME))


def parse(argv):
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    p = argparse.ArgumentParser(description="Holds the tree to the house's rules.")
    p.add_argument("--root", default=root)
    p.add_argument("--plain", help="non-LTO, non-sanitizer build (default: ROOT/build/plain)")
    p.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    p.add_argument("--tidy-seconds", type=int, default=600)
    p.add_argument("--list", action="store_true", help="print the rules and stop")
    p.add_argument("rules", nargs="*", metavar="RULE")
    args = p.parse_args(argv)
    args.plain = args.plain or os.path.join(args.root, "build", "plain")
    known = [r.NAME for r in RULES]
    for name in args.rules:
        if name not in known:
            p.error(f"no rule {name}; there are: {' '.join(known)}")
    return args


def main(argv):
    args = parse(argv)
    chosen = [r for r in RULES if not args.rules or r.NAME in args.rules]
    if args.list:
        for r in chosen:
            print(f"{r.NAME:10} {r.__doc__.strip().splitlines()[0]}")
        return 0
    ctx = Context(args.root, args.plain, args.jobs, args.tidy_seconds)
    try:
        waivers = load_waivers(os.path.join(ctx.root, "tests", "lint", "waivers.txt"))
    except WaiverError as e:
        print(e)
        return 1
    failed = 0
    for rule in chosen:
        start = time.monotonic()
        findings = run_rule(rule, ctx, waivers)
        for f in findings:
            print(f"{f.path}:{f.line}: {f.rule}: {f.text}")
        failed += bool(findings)
        verdict = f"{len(findings)} findings" if findings else "ok"
        print(f"lint {rule.NAME:10} {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
