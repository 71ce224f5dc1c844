/* Tells when a file has a new content to read: written in place, replaced by rename, or switched by
 * a symbolic link somewhere in its path (as Kubernetes does).
 *
 * A change is told once the file has been still for a moment, so that a half-written one is rarely
 * read; a file that goes away is no change. Notifications come from inotify on the directories; a
 * slow look besides covers file systems without it.
 *
 * Thread: control's loop.
 */
#ifndef MILLRACE_CONTROL_WATCH_FILE_H
#define MILLRACE_CONTROL_WATCH_FILE_H

#include <stdbool.h>
#include <uv.h>

#define WATCH_STILL_MS 150
#define WATCH_LOOK_MS  2000

enum watch_event { WATCH_CHANGED, WATCH_GONE, WATCH_BACK };

struct watch_file;

/* What is there now counts as known. 0 or -errno. */
int watch_file_new(uv_loop_t *loop, const char *path, void (*fn)(void *ctx, enum watch_event ev),
                   void *ctx, struct watch_file **ret_watch);

/* The content of now is known: someone else has just read it. */
void watch_file_seen(struct watch_file *w);

/* NULL is fine. */
void watch_file_close(struct watch_file *w);

#endif
