/* The thread that reads and writes the files of saved sessions, one job after the other: reads before everything
 * else, as somebody waits for them, the rest in the order in which it came. Jobs carry their own result; they are
 * handed in and taken back by one thread (the engine's).
 *
 * Writing a file: to a temporary name, synced, renamed. A manifest syncs the folder before it, so that its blocks are
 * there, and after it; when it is removed, too, so that a deleted session does not come back. So does a response. */
#ifndef DAEMON_STATE_STORE_WORKER_H
#define DAEMON_STATE_STORE_WORKER_H

#include "daemon/response_record.h"
#include "daemon/state_store_format.h"
#include "daemon/state_store_fs.h"

struct stored_block;
struct stored_response;
struct stored_session;

enum state_job_kind {
    STATE_JOB_WRITE_BLOCK,
    STATE_JOB_WRITE_MANIFEST,
    STATE_JOB_READ_BLOCK,
    STATE_JOB_REMOVE_BLOCK,
    STATE_JOB_REMOVE_MANIFEST,
    STATE_JOB_WRITE_RESPONSE,
    STATE_JOB_READ_RESPONSE, /* unless bytes are given along */
    STATE_JOB_REMOVE_RESPONSE,
};

enum {
    STATE_NAME_BYTES = 48,
    STATE_PATH_BYTES = 1024,
    STATE_MAX_RESPONSE_BYTES = 1 << 28, /* of a stored response */
};

/* From malloc. bytes too; blocks: header and K/V. */
struct state_job {
    enum state_job_kind kind;
    char name[STATE_NAME_BYTES];
    void *bytes;
    size_t n_bytes;
    struct state_hash hash; /* blocks */
    int32_t n_tokens; /* blocks */
    struct response_id response_id; /* responses that are read */

    /* The owner's. */
    struct stored_block *block;
    struct stored_session *session;
    struct stored_response *response;
    void *context;

    enum npu_status status;
    struct npu_error error; /* names the file */
    struct state_job *next;
};

struct state_worker;

struct state_worker_options {
    const char *dir; /* copied */
    const struct state_fs *fs; /* borrowed */
    struct state_identity identity;
    bool threaded; /* false: jobs run when state_worker_run is called */
    void (*on_done)(void *context); /* the worker's thread: a job can be taken back; may be NULL */
    void *context;
};

enum npu_status state_worker_create(struct state_worker **ret_worker, const struct state_worker_options *options,
                                    struct npu_error *error);
/* Jobs that were handed in are done first; those not taken back are freed. NULL is fine. */
void state_worker_destroy(struct state_worker *worker);

void state_worker_post(struct state_worker *worker, struct state_job *job);
struct state_job *state_worker_take(struct state_worker *worker); /* all that are done, linked; NULL: none */
/* Without a thread: up to n jobs now. Returns how many. */
int state_worker_run(struct state_worker *worker, int n);

void state_job_destroy(struct state_job *job); /* NULL is fine */

/* The parts that opening a store needs too. */

/* False: it does not fit. */
bool state_path(char path[STATE_PATH_BYTES], const char *dir, const char *name);

/* The whole file in malloc'ed bytes; at most max_bytes of it. */
enum npu_status state_read_file(const struct state_fs *fs, const char *path, uint64_t max_bytes, void **ret_bytes,
                                size_t *ret_n, struct npu_error *error);

#endif
