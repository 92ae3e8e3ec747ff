/* The queue: its order, and whose turn it is. */
#include "daemon/scheduler_state.h"

static bool same_request(const struct sequence *a, const struct sequence *b)
{
    return a == b || (a->request != 0 && a->request == b->request);
}

static bool leaves_before(const struct sequence *a, const struct sequence *b)
{
    if (a->state != b->state)
        return a->state == SEQUENCE_MOVED_OUT;
    if (a->state == SEQUENCE_WAITING && a->priority != b->priority)
        return a->priority > b->priority;
    return a->order < b->order;
}

void scheduler_enqueue(struct scheduler *scheduler, struct sequence *sequence)
{
    struct sequence **link = &scheduler->first_waiting;
    while (*link != NULL && leaves_before(*link, sequence))
        link = &(*link)->next;
    sequence->next = *link;
    *link = sequence;
    scheduler->n_waiting++;
}

void scheduler_dequeue(struct scheduler *scheduler, struct sequence *sequence)
{
    struct sequence **link = &scheduler->first_waiting, *previous = NULL, *next = sequence->next;
    for (; *link != sequence; link = &previous->next)
        previous = *link;
    *link = next;
    bool was_first = previous == NULL || !same_request(previous, sequence);
    if (was_first && next != NULL && same_request(sequence, next))
        next->turn = sequence->turn;
    sequence->next = NULL;
    scheduler->n_waiting--;
}

void scheduler_end_turn(struct scheduler *scheduler, const struct sequence *sequence)
{
    struct sequence *first = scheduler->first_waiting;
    if (sequence->request_size <= 1)
        return;
    while (first != NULL && (first->state != SEQUENCE_WAITING || !same_request(first, sequence)))
        first = first->next;
    if (first != NULL)
        first->turn = scheduler->clock++;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int running_of(const struct scheduler *scheduler, const struct sequence *one)
{
    int n = 0;
    for (int i = 0; i < scheduler->n_running; i++)
        n += same_request(scheduler->running[i], one);
    return n;
}

/* Of a request of more sequences than places; all such leave a place to others. */
static bool is_wide(const struct scheduler *scheduler, const struct sequence *one)
{
    int parallel = scheduler->options.parallel;
    return parallel >= SCHEDULER_SHARED_PLACES && one->request_size > parallel;
}

/* Wide ones that may start, if places are free. */
static int room_for_wide(const struct scheduler *scheduler)
{
    int room = scheduler->options.parallel - 1;
    for (int i = 0; i < scheduler->n_running; i++)
        room -= is_wide(scheduler, scheduler->running[i]);
    return room > 0 ? room : 0;
}

/* What one request has in the queue: a row of neighbours. */
struct queued_request {
    const struct sequence *first; /* NULL: the end */
    const struct sequence *next; /* behind it */
    int n;
};

static struct queued_request request_at(const struct sequence *first)
{
    struct queued_request request = {first, first, 0};
    while (request.next != NULL && request.next->state == SEQUENCE_WAITING && same_request(first, request.next)) {
        request.next = request.next->next;
        request.n++;
    }
    return request;
}

static const struct sequence *skip_moved_out(const struct scheduler *scheduler, int *n)
{
    const struct sequence *sequence = scheduler->first_waiting;
    for (*n = 0; sequence != NULL && sequence->state == SEQUENCE_MOVED_OUT; sequence = sequence->next)
        ++*n;
    return sequence;
}

struct sequence *scheduler_choose(const struct scheduler *scheduler)
{
    struct sequence *best = NULL, *previous = NULL;
    int fewest = 0, room = room_for_wide(scheduler);
    for (struct sequence *s = scheduler->first_waiting; s != NULL; previous = s, s = s->next) {
        if (s->state == SEQUENCE_MOVED_OUT) /* it had its turn, and others hold its memory */
            return s;
        if (best != NULL && s->priority < best->priority)
            break;
        if ((previous != NULL && same_request(previous, s)) || (room == 0 && is_wide(scheduler, s)))
            continue;
        int n = running_of(scheduler, s);
        if (best == NULL || n < fewest || (n == fewest && s->turn < best->turn)) {
            best = s;
            fewest = n;
        }
    }
    return best;
}

struct scheduler_queue scheduler_queue(const struct scheduler *scheduler)
{
    int n_moved_out, n_wide = 0, n_others = 0, n_lone = 0;
    struct scheduler_queue queue = {0, 0, 0};
    struct queued_request request = request_at(skip_moved_out(scheduler, &n_moved_out));
    for (; request.first != NULL; request = request_at(request.next)) {
        *(is_wide(scheduler, request.first) ? &n_wide : &n_others) += request.n;
        n_lone += request.n == 1;
        queue.requests++;
    }
    int n_takers = n_others + smaller(n_wide, room_for_wide(scheduler));
    int n_free = scheduler->options.parallel - scheduler->n_running;
    n_free = n_free > n_moved_out ? n_free - n_moved_out : 0;
    queue.spare_places = n_free > n_takers ? n_free - n_takers : 0;
    /* Each of several takes a place before any takes a second one, and only lone ones are gone then. */
    int for_lone = n_free - (queue.requests - n_lone);
    queue.staying = queue.requests - (for_lone > 0 ? smaller(n_lone, for_lone) : 0);
    return queue;
}

int scheduler_before(const struct scheduler *scheduler, const struct sequence *newcomer)
{
    int n_moved_out, n_wide = 0, n_others = 0;
    int place = running_of(scheduler, newcomer) + 1; /* within its request */
    const struct sequence *first = skip_moved_out(scheduler, &n_moved_out);
    struct queued_request request;
    for (request = request_at(first); request.first != NULL; request = request_at(request.next))
        if (same_request(request.first, newcomer))
            place += request.n;
    for (request = request_at(first); request.first != NULL; request = request_at(request.next)) {
        if (request.first->priority < newcomer->priority)
            break;
        int n = request.n;
        if (request.first->priority == newcomer->priority && !same_request(request.first, newcomer)) {
            int ahead = place - running_of(scheduler, request.first); /* as many as bring it level */
            n = ahead > 0 ? smaller(ahead, n) : 0;
        }
        *(is_wide(scheduler, request.first) ? &n_wide : &n_others) += n;
    }
    if (!is_wide(scheduler, newcomer) && scheduler->n_running < scheduler->options.parallel)
        n_wide = smaller(n_wide, room_for_wide(scheduler)); /* the others may not take the place that is free */
    return n_moved_out + n_wide + n_others;
}

int scheduler_free_places(const struct scheduler *scheduler, const struct sequence *newcomer)
{
    int n_free = scheduler->options.parallel - scheduler->n_running;
    return is_wide(scheduler, newcomer) ? smaller(n_free, room_for_wide(scheduler)) : n_free;
}

bool scheduler_queue_is_consistent(const struct scheduler *scheduler, int *ret_moved_out)
{
    int n_waiting = 0, n_moved_out = 0;
    for (const struct sequence *s = scheduler->first_waiting; s != NULL; s = s->next, n_waiting++) {
        if (s->state != SEQUENCE_WAITING && s->state != SEQUENCE_MOVED_OUT)
            return false;
        if (s->next != NULL && !leaves_before(s, s->next))
            return false;
        n_moved_out += s->state == SEQUENCE_MOVED_OUT;
    }
    *ret_moved_out = n_moved_out;
    return n_waiting == scheduler->n_waiting;
}
