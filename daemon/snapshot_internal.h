/* What snapshot.c (the whole), snapshot_save.c and snapshot_restore.c share. Private to them. */
#ifndef DAEMON_SNAPSHOT_INTERNAL_H
#define DAEMON_SNAPSHOT_INTERNAL_H

#include "daemon/snapshot.h"

enum {
    SNAPSHOT_WRITES_AHEAD = 4, /* blocks read out and not yet written, while there is time to wait */
    SNAPSHOT_READ_BYTES = 64 << 20, /* of K/V read and not yet used; at least a block for each restore */
    SNAPSHOT_RESCUED_BYTES = 64 << 20, /* of K/V that waits for the disk at most; what comes on top is lost */
    SNAPSHOT_GENTLE_BYTES = 16 << 20, /* moved between two steps while others decode; at least a block */
};

struct save_waiter {
    struct save_waiter *next;
    void (*on_saved)(void *context, uint64_t id, int32_t n_tokens, const char *reason);
    void *context;
};

/* A session as it was when it was noted for saving. */
struct save {
    struct save *next; /* the order in which they came */
    struct state_manifest manifest; /* without hashes until it is committed */
    struct stored_block **blocks; /* n_blocks, referenced */
    int32_t n_blocks, n_settled; /* those before n_settled are written, or will not be */
    bool committing;
    struct save_waiter *waiters;
};

struct restore {
    struct block_reader reader; /* first */
    struct snapshots *snapshots;
    struct restore *next;
    struct session *session; /* NULL: it was cancelled; goes when nothing is being read for it */
    int32_t max_cached, n_before;
    int32_t first; /* the index in the session of blocks[0] */
    struct stored_block **blocks; /* n_blocks, referenced */
    void **ready; /* n_blocks buffers, or NULL */
    int32_t n_blocks, n_asked, n_loaded;
    int32_t n_usable; /* those before it may still be had */
    int32_t n_reading;
    bool damaged;
    void (*on_end)(void *context, const struct restore_result *result);
    void *context;
};

struct snapshots {
    struct snapshots_options options;
    struct stored_block **wanted; /* by the pool's number: what is to be written from that block, or NULL */
    struct save *first_save;
    uint64_t rescued_bytes; /* of K/V that waits for the disk */
    uint32_t checkpoint; /* number of the last one */
    bool checkpointing;
    uint64_t prompt_ns;
    struct restore *first_restore; /* the order in which they came */
    uint64_t read_bytes; /* being read or read and not yet used */
    struct snapshot_counters counters;
};

bool snapshot_is_worth_saving(const struct session *session);
/* Of an idle or evicted session. NULL: no memory. */
struct save *snapshot_save_begin(struct snapshots *snapshots, struct session *session);
void snapshot_save_cancel(struct snapshots *snapshots, uint64_t id);
void snapshot_save_destroy(struct snapshots *snapshots, struct save *save);
void snapshot_save_on_written(struct snapshots *snapshots);
void snapshot_save_on_committed(struct snapshots *snapshots, struct save *save, const struct state_event *event);
/* Reads blocks out and commits; at most so many bytes, but at least a block. */
void snapshot_save_work(struct snapshots *snapshots, size_t max_bytes);
/* The pool is about to lose a block. */
void snapshot_save_on_loss(void *context, int32_t block);

void snapshot_restore_destroy(struct snapshots *snapshots, struct restore *restore);
/* Loads blocks that have been read; at most so many bytes, but at least a block. */
void snapshot_restore_work(struct snapshots *snapshots, size_t max_bytes);

#endif
