"""A document's links to files of the project lead somewhere."""

import os
import re

from findings import Finding
from tree import read

NAME = "links"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def check_file(root, path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            full = os.path.normpath(os.path.join(root, os.path.dirname(path), target))
            if not os.path.exists(full):
                yield Finding(NAME, path, number, target, f"link to {target} leads nowhere")


def run(ctx):
    for path in ctx.files:
        if path.endswith(".md"):
            yield from check_file(ctx.root, path, read(ctx.root, path))
