#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/admin.h"

static int claim_error(char *err, size_t err_len, int e, const char *path, const char *what)
{
    snprintf(err, err_len, "admin.socket: %s %s: %s", what, path, strerror(e));
    return -e;
}

static int make_folder(const char *path, char *err, size_t err_len)
{
    char copy[PATH_MAX];

    snprintf(copy, sizeof(copy), "%s", path);
    const char *dir = dirname(copy);
    if (mkdir(dir, 0755) && errno != EEXIST)
        return claim_error(err, err_len, errno, dir, "can't make the folder");
    return 0;
}

static int take_lock(const char *path, int *ret_lock, char *err, size_t err_len)
{
    char lock[PATH_MAX];

    if (snprintf(lock, sizeof(lock), "%s.lock", path) >= (int)sizeof(lock))
        return claim_error(err, err_len, ENAMETOOLONG, path, "can't lock");
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return claim_error(err, err_len, errno, lock, "can't open the lock file");
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        int e = errno == EWOULDBLOCK ? EADDRINUSE : errno;
        close(fd);
        if (e != EADDRINUSE)
            return claim_error(err, err_len, e, lock, "can't lock");
        snprintf(err, err_len,
                 "another instance is running (socket %s); stop it, or give this one another "
                 "admin.socket",
                 path);
        return -EADDRINUSE;
    }
    *ret_lock = fd;
    return 0;
}

/* Whoever held the lock is gone, so a socket that is there is nobody's. */
static int remove_stale(const char *path, char *err, size_t err_len)
{
    struct stat st;

    if (lstat(path, &st))
        return errno == ENOENT ? 0 : claim_error(err, err_len, errno, path, "can't look at");
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(err, err_len,
                 "admin.socket: %s is there and is no socket; remove it or choose "
                 "another path",
                 path);
        return -EEXIST;
    }
    if (unlink(path))
        return claim_error(err, err_len, errno, path, "can't remove the stale socket");
    return 0;
}

int admin_claim(const char *path, int *ret_lock, char *err, size_t err_len)
{
    struct sockaddr_un sa;
    int lock = -1, e;

    if (strlen(path) >= sizeof(sa.sun_path))
        return claim_error(err, err_len, ENAMETOOLONG, path, "can't listen on");
    e = make_folder(path, err, err_len);
    if (!e)
        e = take_lock(path, &lock, err, err_len);
    if (e)
        return e;
    e = remove_stale(path, err, err_len);
    if (e) {
        close(lock);
        return e;
    }
    *ret_lock = lock;
    return 0;
}
