"""clang-tidy over the product's sources, two at a time.

A clean file is remembered in build/lint-cache by the hash of all it is made of, so a second run
looks only at what changed.
"""

import hashlib
import json
import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from findings import Finding
from tree import includes, is_bpf, read

NAME = "tidy"
TIDIED = ("runtime/", "config/", "dataplane/", "control/", "bench/")


def reach(root, path, seen):
    """The project files that `path` is compiled from, by quoted includes."""
    if path in seen or not os.path.isfile(os.path.join(root, path)):
        return seen
    seen.add(path)
    for _, header, quoted in includes(read(root, path)):
        if quoted:
            reach(root, header, seen)
    return seen


def fingerprint(root, path, command):
    h = hashlib.sha256(command.encode())
    for name in sorted(reach(root, path, set())) + [".clang-tidy"]:
        h.update(name.encode())
        full = os.path.join(root, name)
        if os.path.exists(full):
            with open(full, "rb") as f:
                h.update(f.read())
    return h.hexdigest()


def check_source(root, build, path, deadline):
    left = deadline - time.monotonic()
    if left <= 0:
        return [Finding(NAME, path, 0, "time", "clang-tidy ran out of its time before this file")]
    try:
        done = subprocess.run(
            ["clang-tidy", "-p", build, "--quiet", "--warnings-as-errors=*",
             "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-error",
             "--extra-arg=-UNDEBUG", path],
            cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
            timeout=max(left, 10))
    except subprocess.TimeoutExpired:
        return [Finding(NAME, path, 0, "time", "clang-tidy did not finish in its time")]
    out = done.stdout.decode(errors="replace")
    found = {}
    for m in re.finditer(r"^(\S+?):(\d+):\d+: (?:error|warning): (.*?) \[([\w.,-]+)\]$", out, re.M):
        name = m.group(1)
        if os.path.isabs(name) or name.startswith(".."):
            name = os.path.relpath(os.path.join(build, name), root)
        check = m.group(4).split(",")[0]
        found[(name, m.group(2), check)] = Finding(
            NAME, name, int(m.group(2)), check, f"{m.group(3)} [{check}]")
    if done.returncode != 0 and not found:
        return [Finding(NAME, path, 0, "clang-tidy", out.strip()[-300:] or "failed")]
    return list(found.values())


def sources(ctx):
    with open(os.path.join(ctx.plain_build, "compile_commands.json"), encoding="utf-8") as f:
        for entry in json.load(f):
            full = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
            path = os.path.relpath(full, ctx.root)
            if path in ctx.files and path.startswith(TIDIED) and not is_bpf(path):
                yield path, entry["command"]


def run(ctx):
    cache = os.path.join(ctx.root, "build", "lint-cache")
    os.makedirs(cache, exist_ok=True)
    deadline = time.monotonic() + ctx.tidy_seconds
    work = {}
    for path, command in sources(ctx):
        mark = os.path.join(cache, fingerprint(ctx.root, path, command))
        if not os.path.exists(mark):
            work[path] = mark
    # Big files first, so that the last one doesn't run alone.
    order = sorted(work, key=lambda p: -os.path.getsize(os.path.join(ctx.root, p)))
    seen = set()
    with ThreadPoolExecutor(ctx.jobs) as pool:
        results = pool.map(lambda p: check_source(ctx.root, ctx.plain_build, p, deadline), order)
        for path, result in zip(order, results):
            if not result:
                with open(work[path], "w", encoding="utf-8"):
                    pass
            for f in result:
                if f not in seen:
                    seen.add(f)
                    yield f
