"""What a rule found, and the waivers that excuse it."""

import os
from collections import namedtuple
from fnmatch import fnmatch

Finding = namedtuple("Finding", "rule path line what text")
Waiver = namedtuple("Waiver", "rule path what reason line")


class WaiverError(Exception):
    pass


def load_waivers(path):
    """Lines of `rule | path | what | reason`; the path may be a pattern, `what` * for all. No reason, no waiver."""
    waivers = []
    if not os.path.exists(path):
        return waivers
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            parts = [p.strip() for p in line.split("|", 3)]
            if len(parts) != 4 or not all(parts) or len(parts[3]) < 10:
                raise WaiverError(f"{path}:{number}: expected `rule | path | what | reason`")
            waivers.append(Waiver(*parts, number))
    return waivers


def excuse(findings, waivers):
    """(findings that stand, waivers that excused something)."""
    left, used = [], set()
    for f in findings:
        match = [w for w in waivers
                 if w.rule == f.rule and fnmatch(f.path, w.path) and w.what in ("*", f.what)]
        if match:
            used.update(match)
        else:
            left.append(f)
    return left, used
