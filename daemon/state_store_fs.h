/* The file system as the state store uses it: an interface, so that tests can let every call fail, and the real one.
 * Every function returns 0 or more on success and -errno on failure. Paths are absolute or relative to the process.
 * Files are read, not mapped: a mapped file that another process cuts short would end the daemon. */
#ifndef DAEMON_STATE_STORE_FS_H
#define DAEMON_STATE_STORE_FS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct state_fs {
    void *context;
    int (*make_dir)(void *context, const char *path); /* one level; 0 when it is there already */
    int (*lock)(void *context, const char *path); /* makes the file, takes it for this process; a descriptor */
    int (*open)(void *context, const char *path, uint64_t *ret_size); /* regular files, to read; a descriptor */
    int (*create)(void *context, const char *path); /* empty, for its owner alone, to write; a descriptor */
    ssize_t (*read)(void *context, int file, void *bytes, size_t n); /* may read less; 0: the end */
    ssize_t (*write)(void *context, int file, const void *bytes, size_t n); /* may write less */
    int (*sync)(void *context, int file);
    int (*close)(void *context, int file);
    int (*rename)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
    int (*sync_dir)(void *context, const char *path);
    /* Calls on_file for each regular file; stops when it returns non-zero, and returns that. */
    int (*list)(void *context, const char *path, int (*on_file)(void *argument, const char *name, uint64_t size),
                void *argument);
};

extern const struct state_fs state_fs_real;

#endif
