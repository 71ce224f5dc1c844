"""Every reason, drop, error and state of the .def tables is used by the program: what is documented
happens."""

import os
import re

from findings import Finding
from tree import is_c, read

NAME = "codes"
# Table, its macro, the prefix of its enumerators.
TABLES = [
    ("dataplane/proxy/reason.def", "REASON", "ACCESS_"),
    ("dataplane/proxy/conn_state.def", "CONN_STATE", "CONN_STATE_"),
    ("dataplane/net/drop.def", "DROP", "NET_DROP_"),
    ("dataplane/tcp/drop.def", "DROP", "TCP_DROP_"),
    ("dataplane/http/error.def", "ERROR", "HTTP_ERR_"),
    ("dataplane/upstream/probe.def", "PROBE", "PROBE_"),
    ("control/verdict.def", "VERDICT", "VERDICT_"),
]
SOURCES = ("dataplane/", "control/")


def check_table(path, text, macro, prefix, used):
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(rf"{macro}\((\w+)", line)
        if found and prefix + found.group(1) not in used:
            yield Finding(NAME, path, number, found.group(1),
                          f"{found.group(1)} is in the table, and nothing is ever counted so")


def run(ctx):
    used = set()
    for path in ctx.files:
        if is_c(path) and path.startswith(SOURCES):
            used.update(re.findall(r"\b[A-Z][A-Z_]*_\w+", read(ctx.root, path)))
    for path, macro, prefix in TABLES:
        if os.path.exists(os.path.join(ctx.root, path)):
            yield from check_table(path, read(ctx.root, path), macro, prefix, used)
