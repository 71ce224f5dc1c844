"""C in the runtime's documents is what its tests compile and run."""

import os
import re
import textwrap

from findings import Finding
from tree import read

NAME = "examples"
DOCUMENTS = ("docs/runtime.md", "docs/runtime/")
FOLDER = "tests/examples/"
SOURCE = re.compile(r"^<!-- (\S+): (\S+) -->$")
BEGIN = re.compile(r"^\s*/\* doc: (\S+) \*/$")
END = re.compile(r"^\s*/\* doc end \*/$")


def regions(text):
    """{name: text} of what stands between `doc: NAME` and `doc end`, moved to the left margin."""
    found, name, lines = {}, None, []
    for line in text.split("\n"):
        begin = BEGIN.match(line)
        if begin:
            name, lines = begin.group(1), []
        elif END.match(line) and name:
            found[name] = textwrap.dedent("\n".join(lines))
            name = None
        elif name:
            lines.append(line)
    return found


def blocks(text):
    """(line, the line before it, text) of every block of C."""
    lines = text.split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line == "```c" and start is None:
            start = number
        elif line == "```" and start is not None:
            yield start, lines[start - 2] if start > 1 else "", "\n".join(lines[start:number - 1])
            start = None


def is_run(root, path):
    """A source that meson has a test of; a header that one of those includes."""
    if path.endswith(".c"):
        stem = os.path.basename(path)[:-2]
        return f"'{stem}'" in read(root, FOLDER + "meson.build")
    sources = (FOLDER + f for f in os.listdir(os.path.join(root, FOLDER)) if f.endswith(".c"))
    return any(f'#include "{path}"' in read(root, f) and is_run(root, f) for f in sources)


def check_block(root, before, block):
    """What is wrong with it, None for nothing."""
    m = SOURCE.match(before)
    if not m:
        return "before C there must stand `<!-- FILE: REGION -->`"
    path, name = m.groups()
    if not path.startswith(FOLDER) or not os.path.isfile(os.path.join(root, path)):
        return f"{path} is no file of {FOLDER}"
    if not is_run(root, path):
        return f"{path} isn't run by {FOLDER}meson.build"
    found = regions(read(root, path))
    if name not in found:
        return f"{path} has no region {name}"
    if found[name] != block:
        return f"differs from region {name} of {path}"
    return None


def check_file(root, path, text):
    for line, before, block in blocks(text):
        wrong = check_block(root, before, block)
        if wrong:
            yield Finding(NAME, path, line, before or "?", wrong)


def run(ctx):
    for path in ctx.files:
        if path.endswith(".md") and path.startswith(DOCUMENTS):
            yield from check_file(ctx.root, path, read(ctx.root, path))
