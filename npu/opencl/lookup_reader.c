#include "npu/opencl/lookup_reader.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum {
    NO_SLOT = -1,
    NO_TOKEN = -1
};

/* A slot is in one of these lists, or in none while its row is being read. */
enum list {
    LIST_KEPT, /* rows that are there, and free slots; the longest unused first */
    LIST_HELD, /* rows of the step that runs */
    LIST_URGENT, /* to be read: the step waits */
    LIST_AHEAD, /* to be read */
    N_LISTS
};

enum slot_state {
    SLOT_FREE,
    SLOT_WANTED, /* in LIST_URGENT or LIST_AHEAD */
    SLOT_READING,
    SLOT_READY /* in LIST_KEPT or LIST_HELD */
};

struct slot {
    int32_t token;
    enum slot_state state;
    bool held; /* by the step */
    int previous, next; /* in its list; the lists' heads stand behind the slots */
    int hash_next; /* of the same bucket */
};

struct lookup_reader {
    struct lookup_reader_options options;
    struct slot *slots; /* capacity, then one head for each list */
    int *buckets; /* first slot of each hash bucket */
    uint32_t bucket_mask;
    unsigned char *rows;
    pthread_t *threads;
    int n_started;
    pthread_mutex_t lock; /* over everything here but the options and the rows that are being read */
    pthread_cond_t work, arrived;
    bool has_lock, stopping;
};

/* -- lists and hash ----------------------------------------------------------------------------------------------- */

static int head_of(const struct lookup_reader *reader, enum list list)
{
    return reader->options.capacity + (int)list;
}

static void unlink_slot(struct lookup_reader *reader, int index)
{
    struct slot *slot = &reader->slots[index];
    reader->slots[slot->previous].next = slot->next;
    reader->slots[slot->next].previous = slot->previous;
    slot->previous = slot->next = index;
}

/* At the end of the list, out of whatever list it is in. */
static void move_slot(struct lookup_reader *reader, int index, enum list list)
{
    struct slot *slot = &reader->slots[index];
    int head = head_of(reader, list);
    unlink_slot(reader, index);
    slot->next = head;
    slot->previous = reader->slots[head].previous;
    reader->slots[slot->previous].next = index;
    reader->slots[head].previous = index;
}

static int first_slot(const struct lookup_reader *reader, enum list list)
{
    int index = reader->slots[head_of(reader, list)].next;
    return index < reader->options.capacity ? index : NO_SLOT;
}

static int *bucket_of(struct lookup_reader *reader, int32_t token)
{
    return &reader->buckets[(uint32_t)token * 2654435761u >> 16 & reader->bucket_mask];
}

static int find_slot(struct lookup_reader *reader, int32_t token)
{
    int index = *bucket_of(reader, token);
    while (index != NO_SLOT && reader->slots[index].token != token)
        index = reader->slots[index].hash_next;
    return index;
}

static void forget_token(struct lookup_reader *reader, int index)
{
    if (reader->slots[index].token == NO_TOKEN)
        return;
    int *link = bucket_of(reader, reader->slots[index].token);
    while (*link != index)
        link = &reader->slots[*link].hash_next;
    *link = reader->slots[index].hash_next;
    reader->slots[index].token = NO_TOKEN;
}

/* Gives a token a slot that nobody needs, to be read; NO_SLOT: all are needed. */
static int take_slot(struct lookup_reader *reader, int32_t token, enum list list)
{
    int index = first_slot(reader, LIST_KEPT);
    if (index == NO_SLOT && list == LIST_URGENT) { /* what was only asked for gives way */
        index = reader->slots[head_of(reader, LIST_AHEAD)].previous;
        index = index < reader->options.capacity ? index : NO_SLOT;
    }
    if (index == NO_SLOT)
        return NO_SLOT;
    struct slot *slot = &reader->slots[index];
    forget_token(reader, index);
    slot->token = token;
    slot->state = SLOT_WANTED;
    slot->hash_next = *bucket_of(reader, token);
    *bucket_of(reader, token) = index;
    move_slot(reader, index, list);
    return index;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

static void *row_of(const struct lookup_reader *reader, int index)
{
    return reader->rows + (size_t)index * reader->options.row_bytes;
}

static void *read_rows(void *argument)
{
    struct lookup_reader *reader = argument;
    pthread_mutex_lock(&reader->lock);
    for (;;) {
        int index = first_slot(reader, LIST_URGENT);
        if (index == NO_SLOT)
            index = first_slot(reader, LIST_AHEAD);
        if (reader->stopping)
            break;
        if (index == NO_SLOT) {
            pthread_cond_wait(&reader->work, &reader->lock);
            continue;
        }
        struct slot *slot = &reader->slots[index];
        slot->state = SLOT_READING;
        unlink_slot(reader, index);
        pthread_mutex_unlock(&reader->lock);
        reader->options.read(reader->options.context, slot->token, row_of(reader, index));
        pthread_mutex_lock(&reader->lock);
        slot->state = SLOT_READY;
        move_slot(reader, index, slot->held ? LIST_HELD : LIST_KEPT);
        if (slot->held)
            pthread_cond_signal(&reader->arrived);
    }
    pthread_mutex_unlock(&reader->lock);
    return NULL;
}

void lookup_reader_ask(struct lookup_reader *reader, const int32_t *tokens, int n)
{
    bool added = false;
    if (n > reader->options.capacity / 2)
        n = reader->options.capacity / 2;
    pthread_mutex_lock(&reader->lock);
    for (int i = 0; i < n; i++) {
        int index = find_slot(reader, tokens[i]);
        if (index == NO_SLOT)
            added |= take_slot(reader, tokens[i], LIST_AHEAD) != NO_SLOT;
        else if (reader->slots[index].state == SLOT_READY && !reader->slots[index].held)
            move_slot(reader, index, LIST_KEPT); /* not the next to go */
    }
    if (added)
        pthread_cond_broadcast(&reader->work);
    pthread_mutex_unlock(&reader->lock);
}

static void release_held(struct lookup_reader *reader)
{
    for (int index; (index = first_slot(reader, LIST_HELD)) != NO_SLOT;) {
        reader->slots[index].held = false;
        move_slot(reader, index, LIST_KEPT);
    }
}

/* Marks the token's slot as the step's; returns whether its row is there. */
static bool hold_token(struct lookup_reader *reader, int32_t token)
{
    int index = find_slot(reader, token);
    if (index == NO_SLOT)
        index = take_slot(reader, token, LIST_URGENT); /* there is one: capacity allows for a step and all reads */
    else if (reader->slots[index].state == SLOT_READY)
        move_slot(reader, index, LIST_HELD);
    else if (reader->slots[index].state == SLOT_WANTED)
        move_slot(reader, index, LIST_URGENT);
    reader->slots[index].held = true;
    return reader->slots[index].state == SLOT_READY;
}

int lookup_reader_hold(struct lookup_reader *reader, const int32_t *tokens, int n, const void **rows)
{
    int n_missing = 0;
    pthread_mutex_lock(&reader->lock);
    release_held(reader);
    for (int i = 0; i < n; i++)
        n_missing += !hold_token(reader, tokens[i]);
    if (first_slot(reader, LIST_URGENT) != NO_SLOT)
        pthread_cond_broadcast(&reader->work);
    for (int i = 0; i < n; i++) {
        int index = find_slot(reader, tokens[i]);
        while (reader->slots[index].state != SLOT_READY)
            pthread_cond_wait(&reader->arrived, &reader->lock);
        rows[i] = row_of(reader, index);
    }
    pthread_mutex_unlock(&reader->lock);
    return n_missing;
}

/* -- creation ----------------------------------------------------------------------------------------------------- */

static enum npu_status allocate(struct lookup_reader *reader, struct npu_error *error)
{
    size_t capacity = (size_t)reader->options.capacity, n_buckets = 16;
    while (n_buckets < 2 * capacity && n_buckets < 1 << 16)
        n_buckets *= 2;
    reader->bucket_mask = (uint32_t)n_buckets - 1;
    reader->slots = calloc(capacity + N_LISTS, sizeof *reader->slots);
    reader->buckets = malloc(n_buckets * sizeof *reader->buckets);
    reader->rows = calloc(capacity, reader->options.row_bytes);
    reader->threads = calloc((size_t)reader->options.n_threads, sizeof *reader->threads);
    if (reader->slots == NULL || reader->buckets == NULL || reader->rows == NULL || reader->threads == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for %zu rows of %zu bytes that are read ahead",
                             capacity, reader->options.row_bytes);
    for (size_t i = 0; i < n_buckets; i++)
        reader->buckets[i] = NO_SLOT;
    for (int i = 0; i < reader->options.capacity + N_LISTS; i++)
        reader->slots[i] = (struct slot){.token = NO_TOKEN, .previous = i, .next = i, .hash_next = NO_SLOT};
    for (int i = 0; i < reader->options.capacity; i++)
        move_slot(reader, i, LIST_KEPT);
    return NPU_OK;
}

enum npu_status lookup_reader_create(struct lookup_reader **ret_reader, const struct lookup_reader_options *options,
                                     struct npu_error *error)
{
    struct lookup_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a reader of rows");
    reader->options = *options;
    enum npu_status status = allocate(reader, error);
    if (status == NPU_OK) {
        pthread_mutex_init(&reader->lock, NULL); /* with default attributes none of these can fail */
        pthread_cond_init(&reader->work, NULL);
        pthread_cond_init(&reader->arrived, NULL);
        reader->has_lock = true;
    }
    while (status == NPU_OK && reader->n_started < options->n_threads) {
        if (pthread_create(&reader->threads[reader->n_started], NULL, read_rows, reader) != 0)
            break;
        reader->n_started++;
    }
    if (status == NPU_OK && reader->n_started == 0) /* fewer than asked for will do */
        status = npu_error_set(error, NPU_ERROR_SYSTEM, "cannot start a thread that reads rows ahead");
    if (status != NPU_OK) {
        lookup_reader_destroy(reader);
        return status;
    }
    *ret_reader = reader;
    return NPU_OK;
}

void lookup_reader_destroy(struct lookup_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->has_lock) {
        pthread_mutex_lock(&reader->lock);
        reader->stopping = true;
        pthread_cond_broadcast(&reader->work);
        pthread_mutex_unlock(&reader->lock);
        for (int i = 0; i < reader->n_started; i++)
            pthread_join(reader->threads[i], NULL);
        pthread_mutex_destroy(&reader->lock);
        pthread_cond_destroy(&reader->work);
        pthread_cond_destroy(&reader->arrived);
    }
    free(reader->threads);
    free(reader->rows);
    free(reader->buckets);
    free(reader->slots);
    free(reader);
}
