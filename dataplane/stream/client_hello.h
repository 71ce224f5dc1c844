/* A TLS ClientHello as it stands on the wire, for those who pass it on: which name it asks for
 * (RFC 6066 §3) and which protocols it offers (RFC 7301). Nothing is decrypted or changed.
 *
 * Strict, as far as it is looked at: records of handshake messages (RFC 8446 §5.1) of any lengths
 * but 0, one whole ClientHello that ends with its record, lengths that fit each other, at most one
 * of each extension that is read, one name without its last dot. Cipher suites, versions and other
 * extensions are the server's business: GREASE (RFC 8701) and Encrypted Client Hello are like any
 * other; of the latter the outer name is the one that is read.
 *
 * Thread: any; a hello_reader is its owner's.
 */
#ifndef MILLRACE_DATAPLANE_STREAM_CLIENT_HELLO_H
#define MILLRACE_DATAPLANE_STREAM_CLIENT_HELLO_H

#include "dataplane/stream/rope.h"

#define CLIENT_HELLO_NAME 254 /* of a host, with its NUL */

struct client_hello {
    char name[CLIENT_HELLO_NAME]; /* lower case; empty: none is asked for */
    uint32_t name_len;
    const uint8_t *alpn; /* in the message: a length byte, then a name, each; NULL: none */
    uint32_t alpn_len;
};

/* `message`: the handshake message with its header. 0 or -EBADMSG. */
int client_hello_parse(const uint8_t *message, size_t len, struct client_hello *ret_hello);

/* Does it offer the protocol? */
bool client_hello_offers(const struct client_hello *h, const char *protocol);

/* Where in the records the message stands. Zeroed before use. */
struct hello_reader {
    uint32_t record_;  /* offset of the first record header that isn't here yet */
    uint32_t have_;    /* bytes of the message in front of that, all of them here or not */
    uint32_t message;  /* bytes of the message; 0: not known yet */
    uint32_t records_; /* that have begun */
};

/* Goes on with what has arrived; `in` has what it had before, and more. `max`: bytes that all of it
 * may take. > 0: the message is here, in that many bytes. 0: not yet. -ENOMSG: this is no TLS.
 * -EBADMSG: but no ClientHello. -EMSGSIZE: it is too large. Costs as much as there are new records.
 */
int hello_reader_scan(struct hello_reader *r, const struct rope *in, uint32_t max);

/* Once it is here: the message in one piece, in its mbuf if it lies there in one piece, else in
 * `scratch`, which has room for `message` bytes. */
const uint8_t *hello_reader_message(const struct hello_reader *r, const struct rope *in,
                                    uint8_t *scratch);

#endif
