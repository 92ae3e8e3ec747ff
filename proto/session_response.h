/* Sessions as /v1/sessions shows them. Everything is borrowed for the call; results are malloc'ed and NUL-terminated, NULL
 * when memory is out. Thread: any. */
#ifndef PROTO_SESSION_RESPONSE_H
#define PROTO_SESSION_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct response_session {
    const char *id;
    const char *key; /* prompt_cache_key, or NULL */
    const char *state; /* "busy", "resident", "on_disk" or "evicted" */
    int64_t tokens, resident_tokens; /* all; those whose K/V is in memory */
    int64_t blocks_own, blocks_shared; /* KV blocks; shared ones are those that other sessions use as well */
    uint64_t bytes; /* of all these blocks */
    bool on_disk; /* the state folder has it, perhaps as it was some turns ago */
    bool pinned;
    bool imported;
    int64_t turns; /* requests so far */
    int64_t created, last_used; /* seconds since 1970 */
};

char *session_response_json(const struct response_session *session, size_t *ret_length);
char *session_list_json(const struct response_session *sessions, int n, size_t *ret_length);
char *session_deleted_json(const char *id, size_t *ret_length);

#endif
