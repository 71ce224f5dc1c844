"""A core never blocks: no data-plane or runtime object refers to a call that can.

Works on the objects of build/plain (release, no LTO, no sanitizer), because those name what they
call. It sees direct references only: what a library does inside is not its business.
"""

import json
import os
import re
import subprocess

from findings import Finding
from tree import is_bpf

NAME = "blocking"
AUDITED = ("runtime/", "dataplane/")

BLOCKING = set("""
    read readv pread preadv preadv2 write writev pwrite pwritev pwritev2 sendfile splice tee vmsplice
    open openat creat close opendir readdir closedir stat lstat fstat fstatat unlink rename mkdir
    fsync fdatasync sync ftruncate flock lockf
    fopen fdopen freopen fclose fread fwrite fgets fgetc getc getchar getline getdelim fputs fputc
    putc putchar puts printf fprintf vprintf vfprintf dprintf vdprintf perror fflush scanf fscanf
    vfscanf syslog vsyslog openlog psignal
    poll ppoll select pselect epoll_wait epoll_pwait epoll_pwait2 io_getevents
    sleep usleep nanosleep clock_nanosleep pause alarm sigsuspend sigwait sigwaitinfo sigtimedwait
    wait waitpid wait3 wait4 waitid system popen pclose fork vfork execve execv execvp posix_spawn
    posix_spawnp
    pthread_mutex_lock pthread_mutex_timedlock pthread_mutex_clocklock pthread_rwlock_rdlock
    pthread_rwlock_wrlock pthread_cond_wait pthread_cond_timedwait pthread_cond_clockwait
    pthread_cond_signal pthread_cond_broadcast pthread_join pthread_barrier_wait pthread_create
    pthread_spin_lock mtx_lock mtx_timedlock cnd_wait cnd_timedwait thrd_join thrd_sleep thrd_create
    call_once sem_wait sem_timedwait sem_clockwait
    socket accept accept4 connect recv recvfrom recvmsg recvmmsg send sendto sendmsg sendmmsg ioctl
    getaddrinfo getnameinfo gethostbyname gethostbyname_r gethostbyaddr res_query
    mq_receive mq_timedreceive mq_send msgrcv msgsnd semop semtimedop aio_suspend
    eventfd_read eventfd_write getrandom getentropy mlock mlockall munmap mmap madvise dlopen dlsym
    localtime localtime_r mktime tzset getpwnam getpwuid
    rte_delay_ms rte_delay_us rte_delay_us_sleep rte_eal_mp_wait_lcore rte_log rte_vlog
    uv_run uv_fs_read uv_fs_write
""".split())


def plain_name(symbol):
    """`__read_chk@GLIBC_2.4` and `open64` are read and open to us."""
    symbol = symbol.split("@")[0]
    m = re.fullmatch(r"__(\w+?)_chk", symbol) or re.fullmatch(r"__(\w+?)_2", symbol)
    if m:
        symbol = m.group(1)
    symbol = re.sub(r"^__isoc\d\d_", "", symbol)
    for candidate in (symbol, re.sub(r"64(_time64)?$", "", symbol), symbol.lstrip("_")):
        if candidate in BLOCKING:
            return candidate
    return symbol


def undefined_symbols(obj):
    out = subprocess.run(["nm", "-u", "--format=posix", obj], check=True,
                         stdout=subprocess.PIPE).stdout.decode()
    return [line.split()[0] for line in out.splitlines() if line.strip()]


def objects(ctx):
    """(source, object) of what build/plain compiled for the audited folders."""
    with open(os.path.join(ctx.plain_build, "compile_commands.json"), encoding="utf-8") as f:
        for entry in json.load(f):
            full = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
            path = os.path.relpath(full, ctx.root)
            if path.startswith(AUDITED) and not is_bpf(path):
                yield path, os.path.join(entry["directory"], entry["output"])


def check_object(path, obj):
    for symbol in undefined_symbols(obj):
        name = plain_name(symbol)
        if name in BLOCKING:
            yield Finding(NAME, path, 0, name, f"refers to {symbol}, which can block")


def run(ctx):
    found = sorted(objects(ctx))
    if not found:
        yield Finding(NAME, "build/plain", 0, "build", "no objects to audit")
    for path, obj in found:
        if os.path.exists(obj):
            yield from check_object(path, obj)
        else:
            yield Finding(NAME, path, 0, "build", "no object in build/plain: build it first")
