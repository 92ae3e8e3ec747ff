#include "daemon/mailbox.h"

#include <string.h>

/* Items are of any type: their links are read and written as bytes. */
static void set_next(const struct mailbox *mailbox, void *item, void *next)
{
    memcpy((char *)item + mailbox->link_offset, &next, sizeof next);
}

int mailbox_init(struct mailbox *mailbox, size_t link_offset)
{
    memset(mailbox, 0, sizeof *mailbox);
    mailbox->link_offset = link_offset;
    int status = uv_mutex_init(&mailbox->mutex);
    if (status != 0)
        return status;
    status = uv_cond_init(&mailbox->condition);
    if (status != 0)
        uv_mutex_destroy(&mailbox->mutex);
    return status;
}

void mailbox_clear(struct mailbox *mailbox)
{
    uv_cond_destroy(&mailbox->condition);
    uv_mutex_destroy(&mailbox->mutex);
}

void mailbox_post(struct mailbox *mailbox, void *item)
{
    set_next(mailbox, item, NULL);
    uv_mutex_lock(&mailbox->mutex);
    if (mailbox->first == NULL)
        mailbox->first = item;
    else
        set_next(mailbox, mailbox->last, item);
    mailbox->last = item;
    uv_cond_signal(&mailbox->condition);
    uv_mutex_unlock(&mailbox->mutex);
}

void mailbox_poke(struct mailbox *mailbox)
{
    uv_mutex_lock(&mailbox->mutex);
    mailbox->poked = true;
    uv_cond_signal(&mailbox->condition);
    uv_mutex_unlock(&mailbox->mutex);
}

void *mailbox_take(struct mailbox *mailbox)
{
    uv_mutex_lock(&mailbox->mutex);
    void *first = mailbox->first;
    mailbox->first = mailbox->last = NULL;
    uv_mutex_unlock(&mailbox->mutex);
    return first;
}

void mailbox_wait(struct mailbox *mailbox, uint64_t timeout_ns)
{
    uv_mutex_lock(&mailbox->mutex);
    int status = 0;
    while (mailbox->first == NULL && !mailbox->poked && status == 0)
        status = uv_cond_timedwait(&mailbox->condition, &mailbox->mutex, timeout_ns);
    mailbox->poked = false;
    uv_mutex_unlock(&mailbox->mutex);
}
