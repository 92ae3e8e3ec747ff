#include "proto/session_response.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Keys may come from files of others, which hold any bytes. */
static json_t *key_value(const char *key)
{
    if (key == NULL)
        return json_null();
    json_t *value = json_string(key);
    if (value != NULL)
        return value;
    size_t length = strlen(key);
    char *ascii = malloc(length + 1);
    if (ascii == NULL)
        return NULL;
    for (size_t i = 0; i <= length; i++)
        ascii[i] = (unsigned char)key[i] < 0x80 ? key[i] : '?';
    value = json_string(ascii);
    free(ascii);
    return value;
}

static json_t *session_value(const struct response_session *session)
{
    return json_pack("{s:s, s:s, s:o, s:s, s:I, s:I, s:{s:I, s:I}, s:I, s:b, s:b, s:b, s:I, s:I, s:I}", "id",
                     session->id, "object", "session", "key", key_value(session->key), "state", session->state,
                     "tokens", (json_int_t)session->tokens, "resident_tokens", (json_int_t)session->resident_tokens,
                     "blocks", "own", (json_int_t)session->blocks_own, "shared", (json_int_t)session->blocks_shared,
                     "bytes", (json_int_t)session->bytes, "on_disk", session->on_disk, "pinned", session->pinned,
                     "imported", session->imported, "turns", (json_int_t)session->turns, "created",
                     (json_int_t)session->created, "last_used", (json_int_t)session->last_used);
}

/* Takes the value. */
static char *dump(json_t *value, size_t *ret_length)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    *ret_length = text != NULL ? strlen(text) : 0;
    return text;
}

char *session_response_json(const struct response_session *session, size_t *ret_length)
{
    return dump(session_value(session), ret_length);
}

char *session_list_json(const struct response_session *sessions, int n, size_t *ret_length)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(list, session_value(&sessions[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return dump(json_pack("{s:s, s:o}", "object", "list", "data", list), ret_length);
}

char *session_deleted_json(const char *id, size_t *ret_length)
{
    return dump(json_pack("{s:s, s:s, s:b}", "id", id, "object", "session.deleted", "deleted", 1), ret_length);
}
