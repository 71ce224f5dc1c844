#!/bin/sh
# syscall_names.sh CC...: the names of the system calls by number, as rows of a C array.
printf '#include <sys/syscall.h>\n' | "$@" -E -dM - |
    sed -n 's/^#define __NR_\([a-z0-9_]*\) [0-9]*$/[__NR_\1] = "\1",/p'
