#include "fake_fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "fake file system: broken rule: %s\n", #condition);                                        \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Lives until the file system ends: tests are short. */
struct fake_inode {
    struct fake_inode *next;
    unsigned char *bytes, *synced;
    size_t n, n_synced, capacity;
};

struct fake_entry {
    struct fake_entry *next;
    char name[64];
    struct fake_inode *inode;
};

struct fake_handle {
    struct fake_handle *next;
    int number;
    bool to_write;
    struct fake_inode *inode; /* NULL: the lock */
    size_t position;
};

static void *need(void *memory)
{
    RULE(memory != NULL);
    return memory;
}

/* 0, or what the call has to answer. */
static int fails(struct fake_fs *fs, bool writes)
{
    if (fs->fail_writes_only && !writes)
        return 0;
    fs->n_calls++;
    bool now = fs->fail_at > 0 && (fs->n_calls == fs->fail_at || (fs->fail_on && fs->n_calls > fs->fail_at));
    return now ? -fs->fail_code : 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static struct fake_entry **find(struct fake_entry **list, const char *name)
{
    while (*list != NULL && strcmp((*list)->name, name) != 0)
        list = &(*list)->next;
    return list;
}

static void add_entry(struct fake_entry **list, const char *name, struct fake_inode *inode)
{
    struct fake_entry *entry = need(calloc(1, sizeof *entry));
    RULE(strlen(name) < sizeof entry->name);
    strcpy(entry->name, name);
    entry->inode = inode;
    while (*list != NULL && strcmp((*list)->name, name) < 0)
        list = &(*list)->next;
    entry->next = *list;
    *list = entry;
}

static void remove_entry(struct fake_entry **list, const char *name)
{
    struct fake_entry **link = find(list, name), *entry = *link;
    if (entry == NULL)
        return;
    *link = entry->next;
    free(entry);
}

static void clear_entries(struct fake_entry **list)
{
    while (*list != NULL)
        remove_entry(list, (*list)->name);
}

static void copy_entries(struct fake_entry **to, const struct fake_entry *from)
{
    clear_entries(to);
    for (; from != NULL; from = from->next)
        add_entry(to, from->name, from->inode);
}

static struct fake_inode *new_inode(struct fake_fs *fs)
{
    struct fake_inode *inode = need(calloc(1, sizeof *inode));
    inode->next = fs->inodes;
    fs->inodes = inode;
    return inode;
}

static int open_handle(struct fake_fs *fs, struct fake_inode *inode, bool to_write)
{
    struct fake_handle *handle = need(calloc(1, sizeof *handle));
    handle->number = fs->handles != NULL ? fs->handles->number + 1 : 100;
    handle->inode = inode;
    handle->to_write = to_write;
    handle->next = fs->handles;
    fs->handles = handle;
    return handle->number;
}

static struct fake_handle **handle_of(struct fake_fs *fs, int number)
{
    struct fake_handle **link = &fs->handles;
    while (*link != NULL && (*link)->number != number)
        link = &(*link)->next;
    RULE(*link != NULL);
    return link;
}

static void put(struct fake_inode *inode, size_t position, const void *bytes, size_t n)
{
    if (position + n > inode->capacity) {
        inode->capacity = (position + n) * 2;
        inode->bytes = need(realloc(inode->bytes, inode->capacity));
    }
    if (n > 0)
        memcpy(inode->bytes + position, bytes, n);
    inode->n = position + n;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

static int fake_make_dir(void *context, const char *path)
{
    (void)path;
    return fails(context, true);
}

static int fake_lock(void *context, const char *path)
{
    struct fake_fs *fs = context;
    (void)path;
    int code = fails(fs, true);
    if (code == 0 && fs->locked)
        code = -EWOULDBLOCK;
    if (code != 0)
        return code;
    fs->locked = true;
    return open_handle(fs, NULL, false);
}

static int fake_open(void *context, const char *path, uint64_t *ret_size)
{
    struct fake_fs *fs = context;
    int code = fails(fs, false);
    struct fake_entry *entry = *find(&fs->entries, base_name(path));
    if (code == 0 && entry == NULL)
        code = -ENOENT;
    if (code != 0)
        return code;
    *ret_size = entry->inode->n;
    return open_handle(fs, entry->inode, false);
}

static int fake_create_file(void *context, const char *path)
{
    struct fake_fs *fs = context;
    int code = fails(fs, true);
    if (code != 0)
        return code;
    fs->n_created++;
    remove_entry(&fs->entries, base_name(path));
    struct fake_inode *inode = new_inode(fs);
    add_entry(&fs->entries, base_name(path), inode);
    return open_handle(fs, inode, true);
}

static ssize_t fake_read(void *context, int file, void *bytes, size_t n)
{
    struct fake_fs *fs = context;
    int code = fails(fs, false);
    if (code != 0)
        return code;
    struct fake_handle *handle = *handle_of(fs, file);
    size_t left = handle->position < handle->inode->n ? handle->inode->n - handle->position : 0;
    if (fs->short_reads && ++fs->n_transfers % 5 == 0)
        return -EINTR;
    if (fs->short_reads && n > 1)
        n -= 1;
    if (n > left)
        n = left;
    if (n > 0)
        memcpy(bytes, handle->inode->bytes + handle->position, n);
    handle->position += n;
    return (ssize_t)n;
}

static ssize_t fake_write(void *context, int file, const void *bytes, size_t n)
{
    struct fake_fs *fs = context;
    struct fake_handle *handle = *handle_of(fs, file);
    RULE(handle->to_write);
    int code = fails(fs, true);
    if (code != 0) { /* half of it is there, as on a disk that fills up */
        put(handle->inode, handle->position, bytes, n / 2);
        handle->position += n / 2;
        return code;
    }
    if (fs->short_writes && ++fs->n_transfers % 5 == 0)
        return -EINTR;
    if (fs->short_writes && n > 1)
        n -= 1;
    put(handle->inode, handle->position, bytes, n);
    handle->position += n;
    fs->n_written += n;
    return (ssize_t)n;
}

static int fake_sync(void *context, int file)
{
    struct fake_fs *fs = context;
    int code = fails(fs, true);
    if (code != 0)
        return code;
    struct fake_inode *inode = (*handle_of(fs, file))->inode;
    free(inode->synced);
    inode->synced = need(malloc(inode->n + 1));
    if (inode->n > 0)
        memcpy(inode->synced, inode->bytes, inode->n);
    inode->n_synced = inode->n;
    return 0;
}

static int fake_close(void *context, int file)
{
    struct fake_fs *fs = context;
    struct fake_handle **link = handle_of(fs, file), *handle = *link;
    if (handle->inode == NULL)
        fs->locked = false;
    bool to_write = handle->to_write;
    *link = handle->next;
    free(handle);
    return to_write ? fails(fs, true) : 0;
}

static int fake_rename(void *context, const char *from, const char *to)
{
    struct fake_fs *fs = context;
    int code = fails(fs, true);
    struct fake_entry *entry = *find(&fs->entries, base_name(from));
    RULE(entry != NULL);
    if (code != 0)
        return code;
    struct fake_inode *inode = entry->inode;
    remove_entry(&fs->entries, base_name(from));
    remove_entry(&fs->entries, base_name(to));
    add_entry(&fs->entries, base_name(to), inode);
    return 0;
}

static int fake_unlink(void *context, const char *path)
{
    struct fake_fs *fs = context;
    int code = fails(fs, false);
    if (code == 0 && *find(&fs->entries, base_name(path)) == NULL)
        code = -ENOENT;
    if (code == 0)
        remove_entry(&fs->entries, base_name(path));
    return code;
}

static int fake_sync_dir(void *context, const char *path)
{
    struct fake_fs *fs = context;
    (void)path;
    int code = fails(fs, true);
    if (code == 0)
        copy_entries(&fs->durable, fs->entries);
    return code;
}

static int fake_list(void *context, const char *path, int (*on_file)(void *argument, const char *name, uint64_t size),
                     void *argument)
{
    struct fake_fs *fs = context;
    (void)path;
    int code = fails(fs, false);
    for (const struct fake_entry *entry = fs->entries; code == 0 && entry != NULL; entry = entry->next)
        code = on_file(argument, entry->name, entry->inode->n);
    return code;
}

/* --- the test's side ---------------------------------------------------------------------------------------------- */

struct fake_fs *fake_fs_create(void)
{
    struct fake_fs *fs = need(calloc(1, sizeof *fs));
    fs->fail_code = EIO;
    fs->fs = (struct state_fs){
        .context = fs,
        .make_dir = fake_make_dir,
        .lock = fake_lock,
        .open = fake_open,
        .create = fake_create_file,
        .read = fake_read,
        .write = fake_write,
        .sync = fake_sync,
        .close = fake_close,
        .rename = fake_rename,
        .unlink = fake_unlink,
        .sync_dir = fake_sync_dir,
        .list = fake_list,
    };
    return fs;
}

void fake_fs_destroy(struct fake_fs *fs)
{
    RULE(fs->handles == NULL);
    clear_entries(&fs->entries);
    clear_entries(&fs->durable);
    for (struct fake_inode *next, *inode = fs->inodes; inode != NULL; inode = next) {
        next = inode->next;
        free(inode->bytes);
        free(inode->synced);
        free(inode);
    }
    free(fs);
}

void fake_fs_kill(struct fake_fs *fs)
{
    for (struct fake_handle *next, *handle = fs->handles; handle != NULL; handle = next) {
        next = handle->next;
        free(handle);
    }
    fs->handles = NULL;
    fs->locked = false;
    fs->fail_at = 0;
}

void fake_fs_lose_power(struct fake_fs *fs)
{
    fake_fs_kill(fs);
    copy_entries(&fs->entries, fs->durable);
    for (struct fake_inode *inode = fs->inodes; inode != NULL; inode = inode->next) {
        inode->n = 0;
        put(inode, 0, inode->synced, inode->n_synced);
    }
}

static bool ends_so(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

const char *fake_fs_name(const struct fake_fs *fs, const char *suffix, int n)
{
    for (const struct fake_entry *entry = fs->entries; entry != NULL; entry = entry->next)
        if (ends_so(entry->name, suffix) && n-- == 0)
            return entry->name;
    return NULL;
}

int fake_fs_count(const struct fake_fs *fs, const char *suffix)
{
    int n = 0;
    while (fake_fs_name(fs, suffix, n) != NULL)
        n++;
    return n;
}

unsigned char *fake_fs_bytes(struct fake_fs *fs, const char *name, size_t *ret_n)
{
    struct fake_entry *entry = *find(&fs->entries, name);
    RULE(entry != NULL);
    *ret_n = entry->inode->n;
    return entry->inode->bytes;
}

void fake_fs_put(struct fake_fs *fs, const char *name, const void *bytes, size_t n)
{
    remove_entry(&fs->entries, name);
    struct fake_inode *inode = new_inode(fs);
    put(inode, 0, bytes, n);
    add_entry(&fs->entries, name, inode);
}

void fake_fs_truncate(struct fake_fs *fs, const char *name, size_t n)
{
    struct fake_entry *entry = *find(&fs->entries, name);
    RULE(entry != NULL && n <= entry->inode->n);
    entry->inode->n = n;
}

void fake_fs_remove(struct fake_fs *fs, const char *name)
{
    remove_entry(&fs->entries, name);
}
