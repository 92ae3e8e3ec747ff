/* What users ask about and of sessions, answered by the engine thread between steps. */
#include "daemon/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
    uint64_t now_us = engine_now_us(NULL);
    int64_t now_s = (int64_t)time(NULL);
    session_id_format(description->id, session->id);
    description->key = session->key != NULL ? strdup(session->key) : NULL;
    if (session->key != NULL && description->key == NULL)
        return false;
    description->busy = session->state == SESSION_BUSY;
    description->resident = session->n_blocks > 0;
    description->pinned = session->pinned;
    description->n_tokens = session->n_tokens;
    description->n_resident = session->n_resident;
    description->blocks_shared = session_shared_blocks(sessions, session);
    description->blocks_own = session->n_blocks - description->blocks_shared;
    description->bytes = (uint64_t)session->n_blocks * engine->executor->block_bytes;
    description->turns = session->turns;
    description->created_s = now_s - (int64_t)((now_us - session->created_us) / 1000000);
    description->used_s = now_s - (int64_t)((now_us - session->used_us) / 1000000);
    return true;
}

static void answer(struct engine_request *request, enum engine_answer kind, const char *message)
{
    request->answer = kind;
    snprintf(request->message, sizeof request->message, "%s", message);
}

/* One session, or all of them. */
static void describe_sessions(struct engine *engine, struct engine_request *request, const struct session *only)
{
    struct session_table *table = scheduler_sessions(engine->scheduler);
    int32_t n = 1;
    if (only == NULL)
        n = session_count(table, SESSION_BUSY) + session_count(table, SESSION_IDLE) +
            session_count(table, SESSION_EVICTED);
    request->sessions = calloc((size_t)n + 1, sizeof *request->sessions);
    const struct session *session = only != NULL ? only : session_next(table, NULL);
    while (request->sessions != NULL && request->n_sessions < n) {
        if (!describe(engine, session, &request->sessions[request->n_sessions++]))
            break;
        session = session_next(table, session);
    }
    if (request->n_sessions == n)
        request->answer = ENGINE_ANSWER_OK;
    else
        answer(request, ENGINE_ANSWER_FAILED, "no memory to describe the sessions");
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
        return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "sessions cannot be written");
    }
    return status;
}

static void answer_request(struct engine *engine, struct engine_request *request)
{
    struct session *session = NULL;
    if (request->verb != ENGINE_LIST_SESSIONS || request->session[0] != '\0') {
        uint64_t id = 0;
        if (parse_id(request->session, &id))
            session = session_by_id(scheduler_sessions(engine->scheduler), id);
        if (session == NULL) {
            snprintf(request->message, sizeof request->message, "there is no session %.32s", request->session);
            request->answer = ENGINE_ANSWER_UNKNOWN;
            return;
        }
    }
    bool busy = session != NULL && session->state == SESSION_BUSY;
    bool needs_idle = request->verb == ENGINE_TRUNCATE_SESSION || request->verb == ENGINE_DELETE_SESSION;
    struct npu_error error;
    enum npu_status status = act(engine, request, &session, &error);
    if (status == NPU_ERROR_MEMORY)
        answer(request, ENGINE_ANSWER_FAILED, error.message);
    else if (status != NPU_OK)
        answer(request, busy && needs_idle ? ENGINE_ANSWER_BUSY : ENGINE_ANSWER_REFUSED, error.message);
    else if (session != NULL || request->verb == ENGINE_LIST_SESSIONS)
        describe_sessions(engine, request, session);
    else
        request->answer = ENGINE_ANSWER_OK;
}

void engine_answer_requests(struct engine *engine, bool stopping)
{
    struct engine_request *next, *request = mailbox_take(&engine->requests);
    if (request == NULL)
        return;
    for (; request != NULL; request = next) {
        next = request->next;
        if (stopping)
            answer(request, ENGINE_ANSWER_FAILED, "the engine is stopping");
        else
            answer_request(engine, request);
        mailbox_post(&engine->answers, request);
    }
    uv_async_send(&engine->async);
}
