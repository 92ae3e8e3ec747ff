/* One direction between two threads: a mutexed list of items that carry their own link, and one wakeup. The receiver
 * takes the whole list at once, in the order of posting. Posting never fails and never waits for the receiver. */
#ifndef DAEMON_MAILBOX_H
#define DAEMON_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct mailbox {
    uv_mutex_t mutex;
    uv_cond_t condition;
    void *first, *last;
    size_t link_offset; /* of the pointer to the next item, inside an item */
    bool poked;
};

/* For items of one type: link_offset is offsetof(struct item, next). 0, or libuv's error. */
int mailbox_init(struct mailbox *mailbox, size_t link_offset);
void mailbox_clear(struct mailbox *mailbox); /* the end; no thread may use it any more, items are not freed */

/* Any thread. */
void mailbox_post(struct mailbox *mailbox, void *item);
/* Any thread: ends a wait, now or the next one, without an item. */
void mailbox_poke(struct mailbox *mailbox);

/* The receiver: the first of all items posted so far, linked, or NULL. */
void *mailbox_take(struct mailbox *mailbox);
/* The receiver: until there is an item, a poke, or timeout_ns is over. */
void mailbox_wait(struct mailbox *mailbox, uint64_t timeout_ns);

#endif
