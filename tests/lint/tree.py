"""The files that lint looks at, and just enough understanding of C to judge them."""

import os
import re
import subprocess

C_ROOTS = ("runtime", "config", "dataplane", "control", "bench", "tests")


def tracked_files(root):
    """Files that git knows or would take in, relative to root, sorted; all files without git."""
    try:
        out = subprocess.run(
            ["git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z"],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.decode()
        names = [n for n in out.split("\0") if n]
    except (OSError, subprocess.CalledProcessError):
        names = []
        for folder, folders, files in os.walk(root):
            folders[:] = [d for d in folders if d not in (".git", "build", "__pycache__")]
            names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))


def is_c(name):
    return name.endswith((".c", ".h")) and name.split("/")[0] in C_ROOTS


def is_bpf(name):
    return name.endswith(".bpf.c")


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def strip_comments(text):
    """The text with comments and literals blanked, line numbers kept. Include lines keep theirs."""
    out = []
    pattern = re.compile(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    end = 0
    for m in pattern.finditer(text):
        out.append(text[end:m.start()])
        token = m.group(0)
        line_start = text.rfind("\n", 0, m.start()) + 1
        if token[0] == '"' and re.match(r"\s*#\s*include\b", text[line_start:m.start()]):
            out.append(token)
        else:
            out.append(re.sub(r"[^\n]", " ", token))
        end = m.end()
    out.append(text[end:])
    return "".join(out)


def includes(text):
    """(line, name, is_quoted) of every #include."""
    for number, line in enumerate(strip_comments(text).split("\n"), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if m:
            yield number, m.group(2), m.group(1) == '"'


def functions(text):
    """(name, first line, last line) of every function body.

    The house format puts a function's braces alone in column 0 and nothing else's there, so no
    parser is needed; clang-format is checked by a rule of its own.
    """
    lines = strip_comments(text).split("\n")
    start = None
    for number, line in enumerate(lines, 1):
        if line.rstrip() == "{" and start is None:
            start = number
        elif line.startswith("}") and start is not None:
            yield function_name(lines, start), start, number
            start = None


def function_name(lines, brace):
    head = []
    for line in reversed(lines[:brace - 1]):
        if not line.strip() or line.startswith(("}", "#")) or line.rstrip().endswith(";"):
            break
        head.insert(0, line)
    m = re.search(r"(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", " ".join(head)))
    return m.group(1) if m else "?"
