/* A scheduler with a fake executor and a fake clock, and generations that hold every result against what it must be, and every start
 * against the order of the queue. With a fake file system the sessions are saved there, by a store without a thread. For cmocka tests. */
#ifndef TESTS_SCHEDULER_WORLD_H
#define TESTS_SCHEDULER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/scheduler.h"
#include "daemon/scheduler_state.h"
#include "daemon/snapshot.h"
#include "daemon/state_store.h"
#include "tests/unit/fake_executor.h"
#include "tests/unit/fake_fs.h"

enum {
    WORLD_N_VOCAB = 61,
    WORLD_MAX_CONTEXT = 400,
};

struct job {
    struct sequence sequence; /* first: the callbacks get it back */
    int32_t tokens[WORLD_MAX_CONTEXT]; /* the prompt, then what came out */
    int32_t n_prompt, n_tokens, n_end;
    int32_t n_prompt_rows; /* delivered, in order */
    uint64_t submission; /* which one of the world */
    bool started, ended, failed;
    char message[512];
    uint64_t first_token_us, last_token_us, longest_gap_us;
    uint64_t waited_steps; /* running and unpaused without a row */
};

struct world {
    struct fake_executor *fake;
    struct scheduler *scheduler;
    struct state_store *store; /* or NULL */
    uint64_t now_us, n_submitted;
};

extern const struct fake_options world_fake;
extern const struct scheduler_options world_options;

struct world *world_create(struct fake_options fake, struct scheduler_options options);
/* Sessions come from and go to fs, up to max_bytes. The clock starts at now_us. */
struct world *world_create_on(struct fake_options fake, struct scheduler_options options, struct fake_fs *fs,
                              uint64_t max_bytes, uint64_t now_us);
void world_destroy(struct world *world); /* no job may be left */

/* The lengths of what is read and written. */
struct state_identity world_identity(void);

struct job *world_new_job(const int32_t *prompt, int32_t n_prompt, int32_t n_output); /* free ends it */
void world_submit(struct world *world, struct job *job);
/* Until nothing is left to run, to read and to write. */
void world_run_to_end(struct world *world);

/* From a few seeds, prompts that have beginnings in common. */
void world_make_prompt(int32_t *tokens, int32_t n, int32_t seed);

/* Other K/V in every block of an export, with checksums that are right. */
void world_forge(char *file, size_t n);

#endif
