/* A file system in memory for the state store: one flat folder. Every call can be made to fail, and the power to go: what
 * was not synced is lost then, contents and names apart, as on a real disk. Thread: one at a time. */
#ifndef TESTS_FAKE_FS_H
#define TESTS_FAKE_FS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/state_store_fs.h"

struct fake_fs {
    struct state_fs fs; /* to be given to the store */
    int n_calls; /* so far, of those that can fail */
    int fail_at; /* the call of this number fails (1: the first); 0: none */
    bool fail_on; /* and all after it */
    int fail_code;
    bool fail_writes_only; /* only creating, writing and syncing are counted */
    bool short_writes, short_reads; /* a byte less than asked for, and an interruption now and then */
    int n_transfers; /* reads and writes, ever */
    int n_created; /* files, ever */
    uint64_t n_written; /* bytes, ever */
    struct fake_inode *inodes;
    struct fake_entry *entries, *durable; /* names: as seen, and as they would be after a power failure */
    struct fake_handle *handles;
    bool locked;
};

struct fake_fs *fake_fs_create(void);
void fake_fs_destroy(struct fake_fs *fs); /* no file may be open */

/* The power goes and comes back: handles are closed, what was not synced is gone. */
void fake_fs_lose_power(struct fake_fs *fs);
/* As when the process is killed: handles are closed, everything written is there. */
void fake_fs_kill(struct fake_fs *fs);

int fake_fs_count(const struct fake_fs *fs, const char *suffix); /* files whose names end so */
/* The n-th file whose name ends so, in the order of names; NULL: no more. */
const char *fake_fs_name(const struct fake_fs *fs, const char *suffix, int n);
unsigned char *fake_fs_bytes(struct fake_fs *fs, const char *name, size_t *ret_n); /* to look at and to change */
void fake_fs_put(struct fake_fs *fs, const char *name, const void *bytes, size_t n);
void fake_fs_truncate(struct fake_fs *fs, const char *name, size_t n);
void fake_fs_remove(struct fake_fs *fs, const char *name);

#endif
