#!/usr/bin/env python3
"""Writes the marked regions of tests/examples into the blocks of C of the runtime's documents."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rule_examples import DOCUMENTS, SOURCE, regions
from tree import read, tracked_files


def rewrite(root, text):
    out, is_block = [], False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        m = SOURCE.match(lines[number - 1]) if line == "```c" and number else None
        if m:
            path, name = m.groups()
            out += [line, regions(read(root, path))[name]]
            is_block = True
        elif not is_block or line == "```":
            out.append(line)
            is_block = False
    return "\n".join(out)


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for path in tracked_files(root):
        if path.endswith(".md") and path.startswith(DOCUMENTS):
            before = read(root, path)
            after = rewrite(root, before)
            if after != before:
                with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                    f.write(after)
                print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
