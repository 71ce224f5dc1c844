#include "dataplane/port/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_DIR "/run/millrace"

struct device_lock {
    int fd;
    char path[PATH_MAX];
};

static void lock_path(const char *device, char *path, size_t size)
{
    struct stat ns = {0};
    (void)stat("/proc/self/ns/net", &ns);
    int prefix = snprintf(path, size, LOCK_DIR "/%lu-", (unsigned long)ns.st_ino);
    snprintf(path + prefix, size - (size_t)prefix, "%s.lock", device);
    for (char *p = path + prefix; *p; p++)
        if (*p == '/')
            *p = '_';
}

static pid_t lock_owner(int fd)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    return n > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* The owner unlinks the file when it lets go: what we hold must still be the one at that path. */
static bool is_current(int fd, const char *path)
{
    struct stat ours, there;
    return !fstat(fd, &ours) && !stat(path, &there) && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static int lock_open(const char *path, int *ret_fd, pid_t *ret_owner)
{
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return -errno;
        if (flock(fd, LOCK_EX | LOCK_NB)) {
            int rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
            *ret_owner = lock_owner(fd);
            close(fd);
            return rc;
        }
        if (is_current(fd, path)) {
            *ret_fd = fd;
            return 0;
        }
        close(fd);
    }
}

int device_lock_get(const char *device, struct device_lock **ret_lock, pid_t *ret_owner)
{
    struct device_lock *l = malloc(sizeof(*l));
    if (!l)
        return -ENOMEM;
    lock_path(device, l->path, sizeof(l->path));
    int rc = mkdir(LOCK_DIR, 0755) && errno != EEXIST ? -errno : 0;
    if (!rc)
        rc = lock_open(l->path, &l->fd, ret_owner);
    if (rc) {
        free(l);
        return rc;
    }
    /* For the message that a second instance gives; the lock holds without it. */
    (void)ftruncate(l->fd, 0);
    (void)dprintf(l->fd, "%d\n", (int)getpid());
    *ret_lock = l;
    return 0;
}

void device_lock_put(struct device_lock *l)
{
    if (!l)
        return;
    unlink(l->path);
    close(l->fd);
    free(l);
}
