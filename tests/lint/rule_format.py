"""The house format: clang-format for C, shellcheck for shell, byte-compilation for Python."""

import os
import py_compile
import re
import subprocess
import tempfile

from findings import Finding
from tree import is_c, read

NAME = "format"


def check_c(root, paths):
    if not paths:
        return
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *paths], cwd=root,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    seen = set()
    for m in re.finditer(r"^(\S+?):(\d+):\d+: (?:error|warning)", done.stdout.decode(), re.M):
        if m.group(1) not in seen:
            seen.add(m.group(1))
            yield Finding(NAME, m.group(1), int(m.group(2)), "clang-format",
                          "not formatted: clang-format -i")
    if done.returncode != 0 and not seen:
        yield Finding(NAME, ".clang-format", 0, "clang-format", done.stdout.decode()[:300])


def check_shell(root, path):
    done = subprocess.run(["shellcheck", "-x", "-f", "gcc", path], cwd=root,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    for m in re.finditer(r"^[^:\n]+:(\d+):\d+: (.*)$", done.stdout.decode(), re.M):
        yield Finding(NAME, path, int(m.group(1)), "shellcheck", m.group(2))


def check_python(root, path):
    with tempfile.NamedTemporaryFile(suffix=".pyc") as out:
        try:
            py_compile.compile(os.path.join(root, path), cfile=out.name, doraise=True)
        except py_compile.PyCompileError as e:
            yield Finding(NAME, path, 0, "python", str(e).strip().replace("\n", " "))


def run(ctx):
    yield from check_c(ctx.root, [p for p in ctx.files if is_c(p)])
    for path in ctx.files:
        is_script = path in ("run", ".ci/run") or path.endswith(".sh")
        if is_script and read(ctx.root, path).startswith("#!"):
            yield from check_shell(ctx.root, path)
        elif path.endswith(".py"):
            yield from check_python(ctx.root, path)
