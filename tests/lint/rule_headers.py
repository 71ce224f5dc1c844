"""Each header compiles alone, with the project's own flags."""

import json
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor

from findings import Finding
from tree import is_c

NAME = "headers"
KEEP = ("-I", "-D", "-isystem", "-std=", "-march=", "-m")


def project_flags(build):
    """The flags that decide what a header means, over all compile commands of a build folder."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    flags = []
    for entry in commands:
        words = shlex.split(entry["command"])
        for i, word in enumerate(words):
            if word == "-include":
                pair = [word, words[i + 1]]
            elif word in ("-isystem", "-I"):
                pair = [word, in_build(entry["directory"], words[i + 1])]
            elif word.startswith("-I"):
                pair = ["-I" + in_build(entry["directory"], word[2:])]
            elif word.startswith("-isystem"):
                pair = ["-isystem", in_build(entry["directory"], word[8:])]
            elif word.startswith(KEEP):
                pair = [word]
            else:
                continue
            if pair not in flags:
                flags.append(pair)
    return [w for pair in flags for w in pair if not w.startswith("-DNDEBUG")]


def in_build(directory, path):
    return os.path.normpath(os.path.join(directory, path))


def check_header(root, path, flags):
    command = ["gcc", "-x", "c", "-fsyntax-only", "-Wall", "-Wextra", "-Wno-unused-parameter",
               "-Wno-unused-function", "-Wno-missing-field-initializers", "-Werror", *flags,
               "-I", root, "-"]
    text = f'#include "{path}"\n#include "{path}"\n'
    done = subprocess.run(command, input=text.encode(), cwd=root, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        first = done.stdout.decode(errors="replace").strip().split("\n")
        reason = next((line for line in first if "error:" in line), first[0])
        return [Finding(NAME, path, 1, "header", f"does not compile alone: {reason}")]
    return []


def run(ctx):
    flags = project_flags(ctx.plain_build)
    headers = [p for p in ctx.files if is_c(p) and p.endswith(".h")]
    with ThreadPoolExecutor(ctx.jobs) as pool:
        for result in pool.map(lambda p: check_header(ctx.root, p, flags), headers):
            yield from result
