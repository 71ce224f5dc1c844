/* The command's side of the admin socket. Blocking, with a time limit. */
#ifndef MILLRACE_CONTROL_CLIENT_H
#define MILLRACE_CONTROL_CLIENT_H

#include <jansson.h>
#include <stddef.h>

struct client;

/* 0, or -errno with one line in err that says what to do. */
int client_connect(const char *path, struct client **ret_client, char *err, size_t err_len);
int client_send(struct client *c, const json_t *request, char *err, size_t err_len);

/* The next answer or note, an object; waits `timeout_ms` at most (-1: as long as it takes). 0 with
 * a new reference; -errno with a line in err (-ECONNRESET: the daemon has hung up). */
int client_receive(struct client *c, int timeout_ms, json_t **ret_answer, char *err,
                   size_t err_len);
/* Readable when something has come. */
int client_fd(const struct client *c);
void client_close(struct client *c);

#endif
