"""No unfinished business in the tree: it is done, or it is an issue."""

import re

from findings import Finding
from tree import read

NAME = "words"
# Spelt in two halves so that this file passes its own rule.
WORDS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
TEXT = (".c", ".h", ".def", ".py", ".sh", ".md", ".build", ".yaml", ".yml", ".txt", ".pkt")


def check_file(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        m = WORDS.search(line)
        if m:
            yield Finding(NAME, path, number, m.group(0), f"{m.group(0)}: finish it or file it")
        if line.endswith((" ", "\t")) and not path.endswith(".md"):
            yield Finding(NAME, path, number, "space", "blank at the end of the line")
    if text and not text.endswith("\n"):
        yield Finding(NAME, path, text.count("\n") + 1, "newline", "no newline at the end")


def run(ctx):
    for path in ctx.files:
        if path.endswith(TEXT) or path in ("run", ".ci/run"):
            yield from check_file(path, read(ctx.root, path))
