#!/usr/bin/env python3
"""Counts what meson's tests said, case by case.

    tally.py count BUILD           prints what was left out and why, the output of what failed,
                                   then `PASSED FAILED`
    tally.py targets BUILD SUITE   prints the ninja targets of a suite's tests
"""

import json
import os
import re
import subprocess
import sys

CASE = re.compile(r"^\s*(not ok|ok)\b(?!.*#\s*SKIP)", re.M | re.I)


def tally(test):
    """(passed, failed) of one test: its TAP cases, or itself where it prints none."""
    results = [m.group(1) for m in CASE.finditer(test.get("stdout", ""))]
    passed, failed = results.count("ok"), results.count("not ok")
    is_good = test["result"] in ("OK", "EXPECTEDFAIL", "SKIP")
    if is_good and not results and test["result"] != "SKIP":
        passed = 1
    if not is_good and failed == 0:
        failed = 1  # crashed, timed out, or a sanitizer spoke after the last case
    return passed, failed


def reason(test):
    m = re.search(r"#\s*SKIP\b(.*)", test.get("stdout", ""), re.I)
    return m.group(1).rstrip() if m and m.group(1).strip() else " it doesn't say why"


def count(build):
    path = os.path.join(build, "meson-logs", "testlog.json")
    passed = failed = 0
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as f:
            tests = [json.loads(line) for line in f if line.strip()]
        for test in tests:
            if test["result"] == "SKIP":
                print(f"--- {test['name']}: left out:{reason(test)}")
            good, bad = tally(test)
            passed += good
            failed += bad
            if bad:
                print(f"--- {test['name']}: {test['result']}")
                for stream in ("stdout", "stderr"):
                    lines = test.get(stream, "").rstrip().splitlines()
                    print("\n".join(lines[-80:]))
    print(passed, failed)


def targets(build, suite):
    out = subprocess.run(["meson", "introspect", "--tests", build], check=True,
                         stdout=subprocess.PIPE).stdout
    for test in json.loads(out):
        if any(s.split(":")[-1] == suite for s in test["suite"]):
            print(os.path.relpath(test["cmd"][0], os.path.abspath(build)))


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "count":
        count(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "targets":
        targets(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
