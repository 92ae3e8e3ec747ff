#include "daemon/state_store_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <stdio.h>
#include <unistd.h>

static int real_make_dir(void *context, const char *path)
{
    (void)context;
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : -errno;
}

static int real_lock(void *context, const char *path)
{
    (void)context;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return -errno;
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        return file;
    int error = errno;
    close(file);
    return -error;
}

static int real_open(void *context, const char *path, uint64_t *ret_size)
{
    (void)context;
    struct stat info;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0)
        return -errno;
    int error = fstat(file, &info) != 0 ? errno : S_ISREG(info.st_mode) ? 0 : EINVAL;
    if (error != 0) {
        close(file);
        return -error;
    }
    *ret_size = (uint64_t)info.st_size;
    return file;
}

static int real_create(void *context, const char *path)
{
    (void)context;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return file >= 0 ? file : -errno;
}

static ssize_t real_read(void *context, int file, void *bytes, size_t n)
{
    (void)context;
    ssize_t done = read(file, bytes, n);
    return done >= 0 ? done : -errno;
}

static ssize_t real_write(void *context, int file, const void *bytes, size_t n)
{
    (void)context;
    ssize_t done = write(file, bytes, n);
    return done >= 0 ? done : -errno;
}

static int real_sync(void *context, int file)
{
    (void)context;
    return fsync(file) == 0 ? 0 : -errno;
}

static int real_close(void *context, int file)
{
    (void)context;
    return close(file) == 0 ? 0 : -errno;
}

static int real_rename(void *context, const char *from, const char *to)
{
    (void)context;
    return rename(from, to) == 0 ? 0 : -errno;
}

static int real_unlink(void *context, const char *path)
{
    (void)context;
    /* An empty folder in a file's place goes, too: it would be in the way for ever. */
    return unlink(path) == 0 || (errno == EISDIR && rmdir(path) == 0) ? 0 : -errno;
}

static int real_sync_dir(void *context, const char *path)
{
    (void)context;
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    int error = fsync(dir) == 0 ? 0 : errno;
    close(dir);
    return -error;
}

static int real_list(void *context, const char *path, int (*on_file)(void *argument, const char *name, uint64_t size),
                     void *argument)
{
    (void)context;
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -errno;
    int result = 0;
    for (;;) {
        struct stat info;
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (entry == NULL) {
            result = -errno;
            break;
        }
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
            continue;
        result = on_file(argument, entry->d_name, (uint64_t)info.st_size);
        if (result != 0)
            break;
    }
    closedir(dir);
    return result;
}

const struct state_fs state_fs_real = {
    .make_dir = real_make_dir,
    .lock = real_lock,
    .open = real_open,
    .create = real_create,
    .read = real_read,
    .write = real_write,
    .sync = real_sync,
    .close = real_close,
    .rename = real_rename,
    .unlink = real_unlink,
    .sync_dir = real_sync_dir,
    .list = real_list,
};
