/* libuv reports a client's end of stream, but after that (or while reading is stopped) no longer a reset. This watches
 * a duplicate of the descriptor, which epoll treats as a separate one, for exactly that. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/http_internal.h"

struct peer_watch {
    uv_poll_t poll;
    int descriptor;
    void (*on_change)(void *context);
    void *context;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void on_poll(uv_poll_t *poll_handle, int status, int events)
{
    struct peer_watch *watch = poll_handle->data;
    (void)status;
    (void)events;
    watch->on_change(watch->context);
}

static void free_watch(uv_handle_t *handle)
{
    struct peer_watch *watch = handle->data;
    close(watch->descriptor);
    if (watch->on_closed != NULL)
        watch->on_closed(watch->closed_context);
    free(watch);
}

struct peer_watch *peer_watch_create(uv_loop_t *loop, const uv_handle_t *stream, bool until_shutdown,
                                     void (*on_change)(void *context), void *context)
{
    uv_os_fd_t original;
    if (uv_fileno(stream, &original) != 0)
        return NULL;
    struct peer_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return NULL;
    watch->on_change = on_change;
    watch->context = context;
    watch->descriptor = fcntl(original, F_DUPFD_CLOEXEC, 0);
    if (watch->descriptor < 0 || uv_poll_init(loop, &watch->poll, watch->descriptor) != 0) {
        if (watch->descriptor >= 0)
            close(watch->descriptor);
        free(watch);
        return NULL;
    }
    watch->poll.data = watch;
    /* Resets and closed peers are always reported; something must be asked for, so urgent data, which nobody sends. */
    uv_poll_start(&watch->poll, until_shutdown ? UV_DISCONNECT : UV_PRIORITIZED, on_poll);
    return watch;
}

void peer_watch_close(struct peer_watch *watch, void (*on_closed)(void *context), void *context)
{
    watch->on_closed = on_closed;
    watch->closed_context = context;
    uv_poll_stop(&watch->poll);
    uv_close((uv_handle_t *)&watch->poll, free_watch);
}

bool peer_is_gone(const uv_handle_t *stream)
{
    uv_os_fd_t descriptor;
    if (uv_fileno(stream, &descriptor) != 0)
        return true;
    struct pollfd query = {.fd = descriptor, .events = POLLIN};
    return poll(&query, 1, 0) > 0 && (query.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}
