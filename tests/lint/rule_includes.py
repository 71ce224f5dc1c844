"""Arrows go down only: which folder may include what (docs/architecture.md, The tree)."""

import re

from findings import Finding
from tree import includes, is_bpf, is_c, read

NAME = "includes"

# A packet meets the folders in this order; each may use the ones before it.
LAYERS = ["net", "stream", "tcp", "tls", "http", "route", "upstream", "proxy"]

LIBC = set("""assert complex ctype dirent dlfcn endian errno execinfo fcntl fenv float getopt glob
    grp ifaddrs inttypes iso646 libgen limits link locale math netdb poll pthread pwd sched search semaphore
    setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn
    string strings syslog termios threads time ucontext unistd wchar wctype x86intrin immintrin
    emmintrin smmintrin nmmintrin tmmintrin cpuid byteswap""".split())
KERNEL = {"linux/audit.h", "linux/filter.h", "linux/futex.h", "linux/seccomp.h"}  # trap.c
LIBC_FOLDERS = ("sys/", "arpa/", "net/", "netinet/", "asm/", "sanitizer/")

RUNTIME_RTE = {"rte_ring.h", "rte_rcu_qsbr.h", "rte_pause.h", "rte_cycles.h"}
COMPILER = {"sanitizer/asan_interface.h"}
DATAPLANE_RTE = re.compile(
    r"^rte_(mbuf|mbuf_core|mbuf_ptype|mempool|ring|thash|ip_frag|ether|ip|tcp|udp|arp|icmp|byteorder"
    r"|branch_prediction|prefetch|common|cycles|pause|rcu_qsbr|memcpy|hash_crc|jhash)\.h$")

# Folder prefix -> (project prefixes it may include, system headers beyond libc). First match wins.
TABLE = [
    ("runtime/", ["runtime/"], lambda h: h in RUNTIME_RTE | COMPILER | KERNEL),
    ("config/", ["config/", "runtime/"], lambda h: h in ("libfyaml.h", "pcre2.h")),
    ("dataplane/xdp/", ["dataplane/xdp/", "runtime/", "config/snapshot.h"],
     lambda h: h.startswith(("rte_", "bpf/", "linux/", "libmnl/"))),
    # netif.h names the offloads that a port offers to the stack.
    ("dataplane/port/", ["dataplane/port/", "dataplane/xdp/", "dataplane/net/netif.h", "runtime/",
                         "config/snapshot.h"],
     lambda h: h.startswith(("rte_", "bpf/", "linux/", "libmnl/", "xdp/"))),
]
for _i, _layer in enumerate(LAYERS):
    _extra = {"tls": ("openssl/",), "http": ("nghttp2/",), "route": ("pcre2.h", "jansson.h")}
    TABLE.append((
        f"dataplane/{_layer}/",
        [f"dataplane/{x}/" for x in LAYERS[:_i + 1]] + ["runtime/", "config/snapshot.h"],
        lambda h, own=_extra.get(_layer, ("\0",)): bool(DATAPLANE_RTE.match(h))
        or h.startswith(own)))
TABLE += [
    ("dataplane/", ["dataplane/", "runtime/", "config/snapshot.h"],
     lambda h: h.startswith("rte_")),
    ("control/",
     ["control/", "config/", "runtime/", "dataplane/core.h", "dataplane/engine.h",
      "dataplane/messages.h", "dataplane/misbehave.h",
      "dataplane/tls/context.h", "dataplane/proxy/access_log.h"],
     lambda h: h.startswith(("systemd/", "libmnl/", "curl/", "linux/"))
     or h in ("uv.h", "microhttpd.h", "jansson.h", "ares.h", "libelf.h", "gelf.h")),
]
ANYTHING = ("bench/", "tests/")


def is_libc(header):
    return header.startswith(LIBC_FOLDERS) or header[:-2] in LIBC


def rule_for(path):
    for prefix, project, system in TABLE:
        if path.startswith(prefix):
            return project, system
    return None


def check_file(path, text):
    if path.startswith(ANYTHING):
        return
    allowed = rule_for(path)
    for line, header, quoted in includes(text):
        if allowed is None:
            yield Finding(NAME, path, line, header, "file is in no folder of the include table")
            return
        project, system = allowed
        if not quoted:
            if not is_libc(header) and not system(header):
                yield Finding(NAME, path, line, header, f"<{header}> is not for this folder")
        elif header.endswith(".skel.h"):
            if not path.startswith("dataplane/xdp/"):
                yield Finding(NAME, path, line, header, "the BPF skeleton belongs to xdp")
        elif "/" not in header:
            yield Finding(NAME, path, line, header,
                          f'"{header}": include project headers by their path from the root')
        elif not any(header == p or (p.endswith("/") and header.startswith(p)) for p in project):
            yield Finding(NAME, path, line, header, f'"{header}" is above or beside this folder')


def run(ctx):
    for path in ctx.files:
        if is_c(path) and not is_bpf(path):
            yield from check_file(path, read(ctx.root, path))
