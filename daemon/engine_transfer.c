/* Saving, exporting and importing by request: what takes longer than one turn of the engine. */
#include "daemon/engine_internal.h"

#include <stdlib.h>

#include "daemon/snapshot.h"

enum {
    TRANSFER_BYTES = 16 << 20, /* of an import between two steps; at least a block */
};

static void list_remove(struct session_transfer *transfer)
{
    struct engine *engine = transfer->engine;
    *(transfer->previous == NULL ? &engine->first_transfer : &transfer->previous->next) = transfer->next;
    if (transfer->next != NULL)
        transfer->next->previous = transfer->previous;
}

void session_transfer_destroy(struct session_transfer *transfer)
{
    if (transfer == NULL)
        return;
    session_export_destroy(transfer->out);
    free(transfer);
}

/* The answer is in the request; the loop thread frees the transfer. */
static void end(struct session_transfer *transfer)
{
    list_remove(transfer);
    transfer->piece = NULL;
    engine_post_answer(transfer->engine, transfer->request);
}

static struct transfer_options options_of(const struct engine *engine)
{
    return (struct transfer_options){
        .executor = engine->executor,
        .pool = scheduler_pool(engine->scheduler),
        .sessions = scheduler_sessions(engine->scheduler),
        .store = engine->store,
        .identity = engine->identity,
        .unix_offset_us = engine->unix_offset_us,
    };
}

/* --- saving ------------------------------------------------------------------------------------------------------- */

static void on_saved(void *context, uint64_t id, int32_t n_tokens, const char *reason)
{
    struct session_transfer *transfer = context;
    struct session *session = session_by_id(scheduler_sessions(transfer->engine->scheduler), id);
    if (n_tokens > 0 && session != NULL)
        engine_describe(transfer->engine, transfer->request, session);
    else if (reason != NULL && session != NULL)
        engine_answer(transfer->request, ENGINE_ANSWER_NOT_STORED, reason);
    else
        engine_answer(transfer->request, ENGINE_ANSWER_UNKNOWN, "the session was deleted meanwhile");
    end(transfer);
}

static void begin_save(struct session_transfer *transfer, struct session *session)
{
    struct engine_request *request = transfer->request;
    struct npu_error error;
    if (transfer->engine->store == NULL) {
        engine_answer(request, ENGINE_ANSWER_REFUSED, "nothing can be saved without a state folder (--state-dir)");
        end(transfer);
        return;
    }
    bool busy = session->state == SESSION_BUSY;
    if (!busy) /* who asks wants it kept: others leave the folder before it */
        session_touch(scheduler_sessions(transfer->engine->scheduler), session, engine_now_us(transfer->engine));
    enum npu_status status =
        snapshots_save(scheduler_snapshots(transfer->engine->scheduler), session, on_saved, transfer, &error);
    if (status == NPU_OK)
        return;
    enum engine_answer refusal = status == NPU_ERROR_INPUT ? ENGINE_ANSWER_REFUSED : ENGINE_ANSWER_FAILED;
    engine_answer(request, busy ? ENGINE_ANSWER_BUSY : refusal, error.message);
    end(transfer);
}

/* --- exporting ---------------------------------------------------------------------------------------------------- */

static void advance_export(struct session_transfer *transfer)
{
    struct engine *engine = transfer->engine;
    struct engine_request *request = transfer->request;
    enum export_state state = session_export_next(transfer->out, &transfer->piece, &transfer->piece_bytes);
    transfer->waits = state == EXPORT_WAITS;
    switch (state) {
    case EXPORT_WAITS:
        break;
    case EXPORT_PIECE:
        engine_post_answer(engine, request);
        break;
    case EXPORT_DONE:
        request->answer = ENGINE_ANSWER_OK;
        end(transfer);
        break;
    case EXPORT_FAILED:
        engine_answer(request, ENGINE_ANSWER_FAILED, "the K/V of the session cannot be read");
        end(transfer);
        break;
    }
}

static void begin_export(struct session_transfer *transfer, const struct session *session)
{
    struct transfer_options options = options_of(transfer->engine);
    struct npu_error error;
    if (session_export_create(&transfer->out, &options, session, &error) != NPU_OK) {
        engine_answer(transfer->request, ENGINE_ANSWER_FAILED, error.message);
        end(transfer);
    } else if (engine_describe(transfer->engine, transfer->request, session)) {
        advance_export(transfer);
    } else {
        end(transfer);
    }
}

void engine_go_on_with_export(struct engine_request *request, bool stopping)
{
    struct session_transfer *transfer = request->transfer;
    transfer->piece = NULL;
    if (transfer->go_on && !stopping) {
        advance_export(transfer);
        return;
    }
    engine_answer(request, ENGINE_ANSWER_FAILED, stopping ? "the engine is stopping" : "the reader has gone");
    end(transfer);
}

/* --- importing ---------------------------------------------------------------------------------------------------- */

static void finish_import(struct session_transfer *transfer, enum npu_status status, const struct npu_error *error)
{
    struct engine *engine = transfer->engine;
    struct session *session = session_import_end(transfer->in, status == NPU_OK, engine_now_us(engine));
    transfer->in = NULL;
    if (session != NULL)
        engine_describe(engine, transfer->request, session);
    else
        engine_answer(transfer->request, status == NPU_ERROR_INPUT ? ENGINE_ANSWER_REFUSED : ENGINE_ANSWER_FAILED,
                      error->message);
    end(transfer);
}

static void begin_import(struct session_transfer *transfer)
{
    struct engine *engine = transfer->engine;
    struct engine_request *request = transfer->request;
    struct transfer_options options = options_of(engine);
    struct npu_error error;
    enum npu_status status =
        session_import_create(&transfer->in, &options, request->data, request->data_length, request->key,
                              engine->options.context, engine_now_us(engine), &error);
    if (status == NPU_OK)
        return;
    engine_answer(request, status == NPU_ERROR_INPUT ? ENGINE_ANSWER_REFUSED : ENGINE_ANSWER_FAILED, error.message);
    end(transfer);
}

static void advance_import(struct session_transfer *transfer)
{
    struct npu_error error;
    bool done = false;
    enum npu_status status = session_import_work(transfer->in, TRANSFER_BYTES,
                                                 scheduler_spare_blocks(transfer->engine->scheduler), &done, &error);
    if (status != NPU_OK || done)
        finish_import(transfer, status, &error);
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

void engine_begin_transfer(struct engine *engine, struct engine_request *request, struct session *session)
{
    struct session_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL) {
        engine_answer(request, ENGINE_ANSWER_FAILED, "no memory for the request");
        engine_post_answer(engine, request);
        return;
    }
    transfer->engine = engine;
    transfer->request = request;
    request->transfer = transfer;
    transfer->next = engine->first_transfer;
    if (transfer->next != NULL)
        transfer->next->previous = transfer;
    engine->first_transfer = transfer;
    if (request->verb == ENGINE_SAVE_SESSION)
        begin_save(transfer, session);
    else if (request->verb == ENGINE_EXPORT_SESSION)
        begin_export(transfer, session);
    else
        begin_import(transfer);
}

bool engine_work_on_transfers(struct engine *engine)
{
    bool more = false;
    struct session_transfer *next, *transfer = engine->first_transfer;
    for (; transfer != NULL; transfer = next) {
        next = transfer->next;
        if (transfer->waits)
            advance_export(transfer);
        else if (transfer->in != NULL)
            advance_import(transfer);
    }
    for (transfer = engine->first_transfer; transfer != NULL; transfer = transfer->next)
        more = more || transfer->in != NULL;
    return more;
}

void engine_abort_transfers(struct engine *engine)
{
    struct npu_error error;
    npu_error_set(&error, NPU_ERROR_CANCELLED, "the engine is stopping");
    struct session_transfer *next, *transfer = engine->first_transfer;
    for (; transfer != NULL; transfer = next) {
        next = transfer->next;
        if (transfer->in != NULL) {
            finish_import(transfer, error.status, &error);
        } else if (transfer->waits) {
            engine_answer(transfer->request, ENGINE_ANSWER_FAILED, error.message);
            end(transfer);
        }
    }
}

void engine_abandon_exports(struct engine *engine)
{
    while (engine->first_transfer != NULL) {
        struct session_transfer *transfer = engine->first_transfer;
        list_remove(transfer);
        transfer->piece = NULL;
        engine_answer(transfer->request, ENGINE_ANSWER_FAILED, "the engine is stopping");
        if (transfer->at_reader) /* else the piece was still to be delivered, and its request now comes as the answer */
            mailbox_post(&engine->answers, transfer->request);
    }
}
