#!/usr/bin/env python3
"""Lint's own test: for each rule a bad sample that must be caught and a good one that must not."""

import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import lint
import rule_blocking
import rule_examples
import rule_format
import rule_headers
import rule_includes
import rule_codes
import rule_links
import rule_sizes
import rule_tidy
import rule_words
from findings import Finding, WaiverError, excuse, load_waivers
from tree import functions

HERE = os.path.dirname(os.path.abspath(__file__))

# (path, include line, is it refused)
INCLUDES = [
    ("runtime/task.c", '#include "runtime/list.h"', False),
    ("runtime/task.c", "#include <stdint.h>", False),
    ("runtime/task.c", "#include <sys/eventfd.h>", False),
    ("runtime/mailbox.c", "#include <rte_ring.h>", False),
    ("runtime/task.c", "#include <rte_mbuf.h>", True),
    ("runtime/task.c", '#include "config/snapshot.h"', True),
    ("runtime/task.c", '#include "list.h"', True),
    ("config/load.c", "#include <libfyaml.h>", False),
    ("config/load.c", "#include <uv.h>", True),
    ("config/load.c", '#include "dataplane/core.h"', True),
    ("dataplane/port/veth.c", "#include <rte_ethdev.h>", False),
    ("dataplane/port/veth.c", '#include "dataplane/xdp/steer.h"', False),
    ("dataplane/port/veth.c", '#include "dataplane/net/net.h"', True),
    ("dataplane/port/veth.c", '#include "config/load.h"', True),
    ("dataplane/xdp/steer.c", '#include "steer.skel.h"', False),
    ("dataplane/net/arp.c", '#include "steer.skel.h"', True),
    ("dataplane/net/arp.c", "#include <rte_arp.h>", False),
    ("dataplane/net/arp.c", "#include <rte_ethdev.h>", True),
    ("dataplane/net/arp.c", '#include "dataplane/tcp/tcp.h"', True),
    ("dataplane/net/arp.c", '#include "dataplane/port/port.h"', True),
    ("dataplane/tcp/input.c", '#include "dataplane/net/net.h"', False),
    ("dataplane/tcp/input.c", '#include "dataplane/http/message.h"', True),
    ("dataplane/tls/record.c", "#include <openssl/ssl.h>", False),
    ("dataplane/http/message.c", "#include <openssl/ssl.h>", True),
    ("dataplane/http/h1/parse.c", '#include "dataplane/stream/rope.h"', False),
    ("dataplane/http/h1/parse.c", '#include "dataplane/proxy/exchange.h"', True),
    ("dataplane/proxy/exchange.c", '#include "dataplane/upstream/pool.h"', False),
    ("dataplane/proxy/exchange.c", '#include "control/admin.h"', True),
    ("dataplane/core.c", '#include "dataplane/proxy/listener.h"', False),
    ("dataplane/core.c", '#include "control/admin.h"', True),
    ("control/main.c", '#include "dataplane/core.h"', False),
    ("control/main.c", "#include <microhttpd.h>", False),
    ("control/main.c", '#include "dataplane/tcp/tcb.h"', True),
    ("control/main.c", '/* #include "dataplane/tcp/tcb.h" */', False),
    ("tests/net/run.c", '#include "dataplane/tcp/tcb.h"', False),
    ("misc/x.c", "#include <stdint.h>", True),
]


def body(lines):
    return "int f(int a)\n{\n" + "    a++;\n" * (lines - 2) + "}\n"


# (rule, path, text, expected number of findings)
TEXTS = [
    (rule_sizes, "dataplane/a.c", body(150), 0),
    (rule_sizes, "dataplane/a.c", body(151), 1),
    (rule_sizes, "dataplane/a.c", "static int x;\n" * 800, 0),
    (rule_sizes, "dataplane/a.c", "static int x;\n" * 801, 1),
    (rule_sizes, "tests/e2e/a.py", "x = 1\n" * 801, 1),
    (rule_sizes, "docs/principles.md", "x\n" * 250, 0),
    (rule_sizes, "docs/principles.md", "x\n" * 251, 1),
    (rule_sizes, "dataplane/a.c", 'char *s = "\\\n{";\n' + body(10), 0),
    (rule_words, "dataplane/a.c", "/* TO" "DO: later */\n", 1),
    (rule_words, "dataplane/a.c", "/* FIX" "ME */\n", 1),
    (rule_words, "dataplane/a.c", "int todo_list;\n", 0),
    (rule_words, "dataplane/a.c", "int x; \n", 1),
    (rule_words, "dataplane/a.c", "int x;", 1),
]


class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def check(self, good, name, detail=""):
        self.count += 1
        self.failed += not good
        print(f"{'ok' if good else 'not ok'} {self.count} - {name}")
        if not good and detail:
            print("# " + str(detail).replace("\n", "\n# "))


def write(root, name, text):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def compiled(root, name, text, flags=("-O2", "-D_FORTIFY_SOURCE=2")):
    """The text as a source of a tree with a build folder like meson's."""
    source = write(root, name, text)
    obj = os.path.join("lib.a.p", os.path.basename(name) + ".o")
    build = os.path.join(root, "build", "plain")
    os.makedirs(os.path.join(build, "lib.a.p"), exist_ok=True)
    command = ["gcc", "-std=gnu17", "-D_GNU_SOURCE", *flags, "-I" + root, "-c", source, "-o",
               os.path.join(build, obj)]
    subprocess.run(command, check=True)
    with open(os.path.join(build, "compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump([{"directory": build, "command": " ".join(command), "file": source,
                    "output": obj}], f)
    return lint.Context(root, build, 1, 120)


def test_tables(tap):
    for path, line, refused in INCLUDES:
        found = list(rule_includes.check_file(path, line + "\n"))
        verb = "may not say" if refused else "may say"
        tap.check(bool(found) == refused, f"includes: {path} {verb} {line.replace('#', '')}", found)
    for rule, path, text, expected in TEXTS:
        found = list(rule.check_file(path, text))
        tap.check(len(found) == expected,
                  f"{rule.NAME}: {expected} findings in {path} of {text.count(chr(10))} lines", found)


def test_functions(tap):
    text = ("static int\nlong_name(struct a *x,\n          int y)\n{\n    if (x) {\n    }\n}\n\n"
            "struct s {\n    int a;\n};\n\nint g(void)\n{\n}\n")
    tap.check(list(functions(text)) == [("long_name", 4, 7), ("g", 14, 15)],
              "functions are found with their names", list(functions(text)))


def test_blocking(tap, root):
    cases = [("read(0, b, sizeof(b))", "read"), ("printf(\"%s\", b)", "printf"),
             ("poll((void *)b, 1, 1)", "poll"), ("open(b, 0)", "open"), ("usleep(5)", "usleep"),
             ("strlen(b)", None)]
    head = "#include <stdio.h>\n#include <string.h>\n#include <poll.h>\n#include <fcntl.h>\n" \
           "#include <unistd.h>\nint f(char *b);\nint f(char *p)\n{\n    char b[64];\n" \
           "    memcpy(b, p, 64);\n"
    for i, (call, expected) in enumerate(cases):
        ctx = compiled(f"{root}/blocking{i}", "dataplane/net/a.c", f"{head}    return {call};\n}}\n")
        found = [f.what for f in rule_blocking.run(ctx)]
        tap.check(found == ([expected] if expected else []), f"blocking: {call}", found)
    for symbol, name in (("__read_chk", "read"), ("open64", "open"), ("__open64_2", "open"),
                         ("__isoc99_fscanf", "fscanf"), ("memcpy", "memcpy")):
        tap.check(rule_blocking.plain_name(symbol) == name, f"blocking: {symbol} is {name}")


def test_headers(tap, root):
    ctx = compiled(f"{root}/headers", "runtime/a.c", "int a(void);\nint a(void)\n{\n    return 1;\n}\n")
    cases = [("good.h", "#ifndef G\n#define G\n#include <stdint.h>\nuint8_t f(void);\n#endif\n", 0),
             ("needs.h", "#ifndef N\n#define N\nuint8_t g(void);\n#endif\n", 1),
             ("unguarded.h", "struct twice {\n    int a;\n};\n", 1)]
    for name, text, expected in cases:
        write(ctx.root, f"runtime/{name}", text)
        found = rule_headers.check_header(ctx.root, f"runtime/{name}",
                                          rule_headers.project_flags(ctx.plain_build))
        tap.check(len(found) == expected, f"headers: {name} gives {expected} findings", found)


def test_format(tap, root):
    with open(os.path.join(HERE, "..", "..", ".clang-format"), encoding="utf-8") as f:
        write(root, ".clang-format", f.read())
    for name, text, expected in (("good.c", "int a(void)\n{\n    return 1;\n}\n", 0),
                                 ("bad.c", "int a(void) {\n  return 1; }\n", 1)):
        write(root, f"runtime/{name}", text)
        found = list(rule_format.check_c(root, [f"runtime/{name}"]))
        tap.check(len(found) == expected, f"format: {name} gives {expected} findings", found)
    write(root, "bad.sh", "#!/bin/bash\nrm -rf $1/x\n")
    tap.check(len(list(rule_format.check_shell(root, "bad.sh"))) > 0, "format: shell is checked")
    write(root, "bad.py", "def f(:\n")
    tap.check(len(list(rule_format.check_python(root, "bad.py"))) == 1, "format: Python is checked")


def test_codes(tap, root):
    text = 'REASON(ok, "fine")\nREASON(never, "nobody says so")\n'
    found = [f.what for f in rule_codes.check_table("x.def", text, "REASON", "ACCESS_", {"ACCESS_ok"})]
    tap.check(found == ["never"], "codes: one that nothing uses is found", found)


def test_links(tap, root):
    write(root, "docs/there.md", "x\n")
    text = "[a](there.md) [b](nowhere.md) [c](https://example.org/) [d](there.md#x)\n"
    found = [f.what for f in rule_links.check_file(root, "docs/a.md", text)]
    tap.check(found == ["nowhere.md"], "links: a dead link is found, a live one is not", found)


def test_examples(tap, root):
    write(root, "tests/examples/meson.build", "examples = ['a']\n")
    write(root, "tests/examples/a.c", "int x;\n    /* doc: one */\n    if (x)\n        x++;\n"
                                      "    /* doc end */\n")
    write(root, "tests/examples/b.c", "/* doc: one */\nint y;\n/* doc end */\n")
    write(root, "tests/examples/a.h", "/* doc: two */\nint y;\n/* doc end */\n")
    mark, code = "<!-- tests/examples/a.c: one -->\n", "```c\nif (x)\n    x++;\n```\n"
    for name, text, expected in (
            ("the same", mark + code, 0), ("other code", mark + "```c\nif (y)\n    x++;\n```\n", 1),
            ("no source named", code, 1), ("no such region", mark.replace("one", "two") + code, 1),
            ("no such file", mark.replace("a.c", "c.c") + code, 1),
            ("a file that isn't run", mark.replace("a.c", "b.c") + "```c\nint y;\n```\n", 1),
            ("a header that nobody includes",
             "<!-- tests/examples/a.h: two -->\n```c\nint y;\n```\n", 1),
            ("no C", "```\nx\n```\n", 0)):
        found = list(rule_examples.check_file(root, "docs/runtime/a.md", text))
        tap.check(len(found) == expected, f"examples: {name} gives {expected} findings", found)


def test_tidy(tap, root):
    with open(os.path.join(HERE, "..", "..", ".clang-tidy"), encoding="utf-8") as f:
        config = f.read()
    bad = ("#include <string.h>\nint f(char *p);\nint f(char *p)\n{\n    char b[8];\n"
           "    memset(b, 0, sizeof(p));\n    if (p)\n        return b[0];\n    return *p;\n}\n")
    good = "int f(int a);\nint f(int a)\n{\n    return a + 1;\n}\n"
    for name, text, is_bad in (("bad", bad, True), ("good", good, False)):
        folder = f"{root}/tidy-{name}"
        write(folder, ".clang-tidy", config)
        ctx = compiled(folder, "runtime/a.c", text, ("-O0", "-w"))
        for attempt in ("", " again"):
            found = list(rule_tidy.run(ctx))
            tap.check(bool(found) == is_bad, f"tidy: the {name} sample{attempt}", found)


def test_waivers(tap, root):
    found = [Finding("sizes", "a.c", 1, "f", "long"), Finding("sizes", "a.c", 9, "g", "long")]
    path = write(root, "waivers", "# why\nsizes | a.* | f | one table that reads best whole\n")
    left, used = excuse(found, load_waivers(path))
    tap.check([f.what for f in left] == ["g"] and len(used) == 1, "a waiver excuses what it names")
    path = write(root, "waivers", "sizes | a.c | f |\n")
    try:
        load_waivers(path)
        tap.check(False, "a waiver needs a reason")
    except WaiverError:
        tap.check(True, "a waiver needs a reason")
    path = write(root, "waivers", "sizes | b.c | f | one table that reads best whole\n")
    waivers = load_waivers(path)
    stale = list(lint.stale_waivers(waivers, excuse(found, waivers)[1], "sizes"))
    tap.check(len(stale) == 1, "a waiver that excuses nothing is a finding")


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="mr-lint.") as root:
        test_tables(tap)
        test_functions(tap)
        test_blocking(tap, root)
        test_headers(tap, root)
        test_format(tap, f"{root}/format")
        test_codes(tap, root)
        test_links(tap, f"{root}/links")
        test_examples(tap, f"{root}/examples")
        test_tidy(tap, root)
        test_waivers(tap, root)
    print(f"1..{tap.count}")
    return 1 if tap.failed else 0


if __name__ == "__main__":
    sys.exit(main())
