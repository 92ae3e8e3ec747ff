/* The state folder in the engine's life: opening, checkpoints, the end. */
#include "daemon/engine_internal.h"

#include <inttypes.h>
#include <time.h>

#include "daemon/log.h"
#include "daemon/snapshot.h"
#include "npu/executor.h"
#include "npu/gguf.h"
#include "npu/model.h"

enum {
    SAVE_ALL_LIMIT_S = 30, /* what is not written by then at the end is computed again */
    DISK_WAIT_NS = 100000000, /* for the worker, which pokes */
};

static void on_progress(void *context)
{
    struct engine *engine = context;
    mailbox_poke(&engine->submissions);
}

enum npu_status engine_open_state(struct engine *engine, struct npu_error *error)
{
    const struct executor *executor = engine->executor;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    engine->unix_offset_us = (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - (int64_t)engine_now_us(engine);
    engine->checkpoint_us = engine_now_us(engine);
    engine->identity = (struct state_identity){
        .model = executor->model != NULL ? gguf_identity(executor->model->file) : 0,
        .numerics = executor->numerics,
        .block_bytes = executor->block_bytes,
        .block_tokens = KV_BLOCK_TOKENS,
        .n_vocab = (uint32_t)executor->n_vocab,
    };
    if (engine->options.state_dir == NULL)
        return NPU_OK;
    struct state_store_options options = {
        .dir = engine->options.state_dir,
        .max_bytes = engine->options.state_max_bytes,
        .identity = engine->identity,
        .log = engine->options.log,
        .threaded = true,
    };
    engine->options.state_dir = NULL; /* not ours */
    enum npu_status status = state_store_open(&engine->store, &options, error);
    if (status == NPU_OK)
        state_store_set_on_progress(engine->store, on_progress, engine);
    return status;
}

void engine_on_restored(void *context, struct sequence *sequence)
{
    struct engine *engine = context;
    const struct cache_report *report = &sequence->cache;
    engine->metrics.cached_tokens += (uint64_t)report->n_restored;
    if (report->n_restored > 0)
        log_info(engine->options.log,
                 "session %016" PRIx64 ": %d tokens were read from disk in %.1f ms; computing them would have taken "
                 "about %.0f ms",
                 report->session_id, report->n_restored, report->restore_ms, report->recompute_ms);
}

void engine_share_state_metrics(struct engine *engine)
{
    if (engine->store == NULL)
        return;
    struct engine_metrics *metrics = &engine->metrics;
    struct state_store_counters store = state_store_count(engine->store);
    struct snapshot_counters snapshots = snapshots_count(scheduler_snapshots(engine->scheduler));
    metrics->sessions_on_disk = store.sessions;
    metrics->responses_on_disk = store.responses;
    metrics->state_bytes = store.bytes;
    metrics->state_max_bytes = store.max_bytes;
    metrics->saves = snapshots.saves;
    metrics->failed_saves = snapshots.failed_saves;
    metrics->restores = snapshots.restores;
    metrics->restored_tokens = snapshots.restored_tokens;
    metrics->damaged_files = store.damaged;
    metrics->written_bytes = store.written_bytes;
    metrics->read_bytes = store.read_bytes;
}

void engine_checkpoint(struct engine *engine)
{
    uint64_t now_us = engine_now_us(engine);
    uint64_t interval_us = (uint64_t)engine->options.checkpoint_interval_s * 1000000;
    if (engine->store == NULL || interval_us == 0 || now_us - engine->checkpoint_us < interval_us)
        return;
    engine->checkpoint_us = now_us;
    snapshots_checkpoint(scheduler_snapshots(engine->scheduler));
}

void engine_save_all(struct engine *engine)
{
    if (engine->store == NULL)
        return;
    struct snapshots *snapshots = scheduler_snapshots(engine->scheduler);
    uint64_t end_us = engine_now_us(engine) + UINT64_C(1000000) * SAVE_ALL_LIMIT_S;
    snapshots_checkpoint(snapshots);
    for (;;) {
        engine_beat(engine);
        snapshots_work(snapshots, false);
        if (snapshots_is_settled(snapshots))
            break;
        if (engine_now_us(engine) >= end_us) {
            log_warning(engine->options.log, "not all sessions could be saved within %d s", SAVE_ALL_LIMIT_S);
            break;
        }
        mailbox_wait(&engine->submissions, DISK_WAIT_NS);
    }
    snapshots_give_up(snapshots);
    for (;;) { /* nothing may be left that refers to a save or an export */
        snapshots_work(snapshots, false);
        if (!state_store_is_busy(engine->store))
            return;
        mailbox_wait(&engine->submissions, DISK_WAIT_NS);
    }
}
