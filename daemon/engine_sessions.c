/* What users ask about and of sessions, answered by the engine thread between steps. */
#include "daemon/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/executor.h"

struct engine_request *engine_request_create(enum engine_verb verb)
{
    struct engine_request *request = calloc(1, sizeof *request);
    if (request != NULL)
        request->verb = verb;
    return request;
}

void engine_request_destroy(struct engine_request *request)
{
    if (request == NULL)
        return;
    for (int i = 0; i < request->n_sessions; i++)
        free(request->sessions[i].key);
    free(request->sessions);
    free(request->key);
    free(request->data);
    free(request);
}

void session_id_format(char text[SESSION_ID_BYTES], uint64_t id)
{
    snprintf(text, SESSION_ID_BYTES, "%016" PRIx64, id);
}

static bool parse_id(const char *text, uint64_t *ret_id)
{
    uint64_t id = 0;
    int n = 0;
    for (; text[n] != '\0'; n++) {
        char c = text[n];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        id = id << 4 | (uint64_t)digit;
    }
    *ret_id = id;
    return n == SESSION_ID_BYTES - 1;
}

static bool describe(const struct engine *engine, const struct session *session,
                     struct session_description *description)
{
    struct session_table *sessions = scheduler_sessions(engine->scheduler);
    session_id_format(description->id, session->id);
    description->key = session->key != NULL ? strdup(session->key) : NULL;
    if (session->key != NULL && description->key == NULL)
        return false;
    description->busy = session->state == SESSION_BUSY;
    description->resident = session->n_blocks > 0;
    description->pinned = session->pinned;
    description->imported = session->origin != KV_ORIGIN_HERE;
    description->on_disk = engine->store != NULL && state_store_has(engine->store, session->id);
    description->n_tokens = session->n_tokens;
    description->n_resident = session->n_resident;
    description->blocks_shared = session_shared_blocks(sessions, session);
    description->blocks_own = session->n_blocks - description->blocks_shared;
    description->bytes = (uint64_t)session->n_blocks * engine->executor->block_bytes;
    description->turns = session->turns;
    description->created_s = ((int64_t)session->created_us + engine->unix_offset_us) / 1000000;
    description->used_s = ((int64_t)session->used_us + engine->unix_offset_us) / 1000000;
    return true;
}

void engine_answer(struct engine_request *request, enum engine_answer kind, const char *message)
{
    request->answer = kind;
    snprintf(request->message, sizeof request->message, "%s", message);
}

/* One session, or all of them. False: no memory, and the request says so. */
bool engine_describe(struct engine *engine, struct engine_request *request, const struct session *only)
{
    struct session_table *table = scheduler_sessions(engine->scheduler);
    int32_t n = 1;
    if (only == NULL)
        n = session_count(table, SESSION_BUSY) + session_count(table, SESSION_IDLE) +
            session_count(table, SESSION_EVICTED);
    request->sessions = calloc((size_t)n + 1, sizeof *request->sessions);
    const struct session *session = only != NULL ? only : session_next(table, NULL);
    bool described = request->sessions != NULL;
    while (described && session != NULL && request->n_sessions < n) {
        described = describe(engine, session, &request->sessions[request->n_sessions++]);
        session = session_next(table, session);
    }
    if (!described) {
        engine_answer(request, ENGINE_ANSWER_FAILED, "no memory to describe the sessions");
        return false;
    }
    request->answer = ENGINE_ANSWER_OK;
    return true;
}

/* NPU_OK, or why not. *session: what to describe then; NULL: nothing. */
static enum npu_status act(struct engine *engine, struct engine_request *request, struct session **session,
                           struct npu_error *error)
{
    struct session_table *table = scheduler_sessions(engine->scheduler);
    enum npu_status status = NPU_OK;
    switch (request->verb) {
    case ENGINE_LIST_SESSIONS:
        break;
    case ENGINE_FORK_SESSION:
        status = session_fork(table, *session, request->n_tokens > 0 ? request->n_tokens : (*session)->n_tokens,
                              request->key, engine_now_us(NULL), session, error);
        break;
    case ENGINE_TRUNCATE_SESSION:
        status = session_truncate(table, *session, request->n_tokens, error);
        break;
    case ENGINE_PIN_SESSION:
        status = session_pin(table, *session, error);
        break;
    case ENGINE_UNPIN_SESSION:
        session_unpin(table, *session);
        break;
    case ENGINE_DELETE_SESSION:
        status = session_delete(table, *session, error);
        if (status == NPU_OK)
            *session = NULL;
        break;
    case ENGINE_SAVE_SESSION:
    case ENGINE_EXPORT_SESSION:
    case ENGINE_IMPORT_SESSION:
        break; /* engine_begin_transfer */
    case ENGINE_PUT_RESPONSE:
    case ENGINE_READ_RESPONSE:
    case ENGINE_DELETE_RESPONSE:
        break; /* engine_answer_about_response */
    }
    return status;
}

/* True: answered; false: it will be. */
static bool answer_request(struct engine *engine, struct engine_request *request)
{
    struct session *session = NULL;
    if (request->verb == ENGINE_PUT_RESPONSE || request->verb == ENGINE_READ_RESPONSE ||
        request->verb == ENGINE_DELETE_RESPONSE) {
        engine_answer_about_response(engine, request);
        return false;
    }
    bool about_one = request->verb != ENGINE_LIST_SESSIONS && request->verb != ENGINE_IMPORT_SESSION;
    if (about_one || request->session[0] != '\0') {
        uint64_t id = 0;
        if (parse_id(request->session, &id))
            session = session_by_id(scheduler_sessions(engine->scheduler), id);
        if (session == NULL) {
            snprintf(request->message, sizeof request->message, "there is no session %.32s", request->session);
            request->answer = ENGINE_ANSWER_UNKNOWN;
            return true;
        }
    }
    if (request->verb == ENGINE_SAVE_SESSION || request->verb == ENGINE_EXPORT_SESSION ||
        request->verb == ENGINE_IMPORT_SESSION) {
        engine_begin_transfer(engine, request, session);
        return false;
    }
    bool busy = session != NULL && session->state == SESSION_BUSY;
    bool needs_idle = request->verb == ENGINE_TRUNCATE_SESSION || request->verb == ENGINE_DELETE_SESSION;
    struct npu_error error;
    enum npu_status status = act(engine, request, &session, &error);
    if (status == NPU_ERROR_MEMORY)
        engine_answer(request, ENGINE_ANSWER_FAILED, error.message);
    else if (status != NPU_OK)
        engine_answer(request, busy && needs_idle ? ENGINE_ANSWER_BUSY : ENGINE_ANSWER_REFUSED, error.message);
    else if (session != NULL || request->verb == ENGINE_LIST_SESSIONS)
        engine_describe(engine, request, session);
    else
        request->answer = ENGINE_ANSWER_OK;
    return true;
}

void engine_post_answer(struct engine *engine, struct engine_request *request)
{
    mailbox_post(&engine->answers, request);
    uv_async_send(&engine->async);
}

void engine_answer_requests(struct engine *engine, bool stopping)
{
    struct engine_request *next, *request = mailbox_take(&engine->requests);
    for (; request != NULL; request = next) {
        next = request->next;
        if (request->transfer != NULL) {
            engine_go_on_with_export(request, stopping);
        } else if (stopping) {
            engine_answer(request, ENGINE_ANSWER_FAILED, "the engine is stopping");
            engine_post_answer(engine, request);
        } else if (answer_request(engine, request)) {
            engine_post_answer(engine, request);
        }
    }
}
