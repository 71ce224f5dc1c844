"""Functions of at most 150 lines, files of at most 800, the principles in at most 250."""

from findings import Finding
from tree import functions, is_c, read

NAME = "sizes"
FUNCTION_LINES = 150
FILE_LINES = 800
PRINCIPLES = "docs/principles.md"
PRINCIPLES_LINES = 250


def check_file(path, text):
    lines = text.count("\n")
    if path == PRINCIPLES and lines > PRINCIPLES_LINES:
        yield Finding(NAME, path, lines, "file", f"{lines} lines, at most {PRINCIPLES_LINES}")
    is_script = path.endswith((".py", ".sh")) or path in ("run", ".ci/run")
    if (is_c(path) or is_script) and lines > FILE_LINES:
        yield Finding(NAME, path, lines, "file", f"{lines} lines, at most {FILE_LINES}")
    if not is_c(path):
        return
    for name, first, last in functions(text):
        if last - first + 1 > FUNCTION_LINES:
            yield Finding(NAME, path, first, name,
                          f"{name}() has {last - first + 1} lines, at most {FUNCTION_LINES}")


def run(ctx):
    for path in ctx.files:
        if is_c(path) or path.endswith((".py", ".sh", ".md")) or path in ("run", ".ci/run"):
            yield from check_file(path, read(ctx.root, path))
