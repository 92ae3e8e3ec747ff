/* Rows that are read ahead, with a table whose reads block until the test lets them go. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "npu/opencl/lookup_reader.h"

enum {
    N_TOKENS = 64,
    ROW_BYTES = 24,
    CAPACITY = 16,
    MAX_ROWS = 6,
    N_THREADS = 2
};

struct slow_table {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool blocked[N_TOKENS]; /* reads of this row wait */
    int begun[N_TOKENS], done[N_TOKENS]; /* reads */
    int32_t order[256]; /* tokens as their reads began */
    int n;
};

static void expected_row(int32_t token, unsigned char row[ROW_BYTES])
{
    for (int i = 0; i < ROW_BYTES; i++)
        row[i] = (unsigned char)(token * 31 + i);
}

static void read_slowly(void *context, int32_t token, void *to)
{
    struct slow_table *table = context;
    pthread_mutex_lock(&table->lock);
    table->begun[token]++;
    if (table->n < 256)
        table->order[table->n++] = token;
    pthread_cond_broadcast(&table->changed);
    while (table->blocked[token])
        pthread_cond_wait(&table->changed, &table->lock);
    table->done[token]++;
    pthread_cond_broadcast(&table->changed);
    pthread_mutex_unlock(&table->lock);
    expected_row(token, to);
}

static struct slow_table table;
static struct lookup_reader *reader;

static int open_reader(void **state)
{
    (void)state;
    static const struct lookup_reader_options options = {.read = read_slowly,
                                                         .context = &table,
                                                         .row_bytes = ROW_BYTES,
                                                         .capacity = CAPACITY,
                                                         .max_rows = MAX_ROWS,
                                                         .n_threads = N_THREADS};
    table = (struct slow_table){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    return lookup_reader_create(&reader, &options, NULL) == NPU_OK ? 0 : -1;
}

static void set_blocked(int32_t first, int32_t end, bool blocked)
{
    pthread_mutex_lock(&table.lock);
    for (int32_t token = first; token < end; token++)
        table.blocked[token] = blocked;
    pthread_cond_broadcast(&table.changed);
    pthread_mutex_unlock(&table.lock);
}

static int close_reader(void **state)
{
    (void)state;
    set_blocked(0, N_TOKENS, false);
    lookup_reader_destroy(reader);
    return 0;
}

/* Waits until counts[token] is n; the reads that it waits for are certain to come. */
static void wait_for(const int counts[N_TOKENS], int32_t token, int n)
{
    pthread_mutex_lock(&table.lock);
    while (counts[token] < n)
        pthread_cond_wait(&table.changed, &table.lock);
    pthread_mutex_unlock(&table.lock);
}

static int times_read(int32_t token)
{
    pthread_mutex_lock(&table.lock);
    int n = table.begun[token];
    pthread_mutex_unlock(&table.lock);
    return n;
}

static int hold(const int32_t *tokens, int n)
{
    const void *rows[MAX_ROWS];
    int n_missing = lookup_reader_hold(reader, tokens, n, rows);
    for (int i = 0; i < n; i++) {
        unsigned char expected[ROW_BYTES];
        expected_row(tokens[i], expected);
        assert_memory_equal(rows[i], expected, ROW_BYTES);
    }
    return n_missing;
}

/* Until the row is not only read but kept, too: its reader has a few lines to go after the read. */
static void wait_until_kept(int32_t token)
{
    wait_for(table.done, token, 1);
    hold(&token, 1);
    assert_int_equal(times_read(token), 1);
}

/* ---- tests ---- */

static void rows_come_as_they_stand_in_the_table(void **state)
{
    (void)state;
    int32_t tokens[] = {5, 63, 0, 5, 5, 17}; /* one several times */
    assert_true(hold(tokens, 6) > 0);
    assert_int_equal(hold(tokens, 6), 0);
    assert_int_equal(times_read(5), 1);
}

static void rows_that_were_asked_for_are_not_waited_for(void **state)
{
    (void)state;
    int32_t tokens[] = {1, 2, 3, 4, 5, 6};
    lookup_reader_ask(reader, tokens, 6);
    for (int i = 0; i < 6; i++)
        wait_until_kept(tokens[i]);
    assert_int_equal(hold(tokens, 6), 0);
    for (int i = 0; i < 6; i++)
        assert_int_equal(times_read(tokens[i]), 1);
}

/* Asking returns though the table hangs, and a step gets rows that are there. */
static void slow_reads_hold_up_nobody_who_does_not_need_them(void **state)
{
    (void)state;
    int32_t there[] = {40}, slow[] = {10, 11, 12, 13};
    hold(there, 1);
    set_blocked(10, 11, true);
    lookup_reader_ask(reader, slow, 4);
    wait_for(table.begun, 10, 1);
    assert_int_equal(hold(there, 1), 0);
    wait_for(table.done, 13, 1); /* the other thread goes on */
    assert_int_equal(times_read(10), 1);
}

static void *unblock_soon(void *argument)
{
    (void)argument;
    wait_for(table.begun, 21, 1); /* the step's row is begun though another one hangs */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    set_blocked(21, 22, false);
    return NULL;
}

static void a_step_waits_for_its_own_rows_alone(void **state)
{
    (void)state;
    pthread_t helper;
    int32_t hanging[] = {20}, step[] = {21};
    set_blocked(20, 22, true);
    lookup_reader_ask(reader, hanging, 1);
    wait_for(table.begun, 20, 1);
    assert_int_equal(pthread_create(&helper, NULL, unblock_soon, NULL), 0);
    assert_int_equal(hold(step, 1), 1);
    pthread_join(helper, NULL);
    pthread_mutex_lock(&table.lock);
    assert_int_equal(table.done[20], 0);
    pthread_mutex_unlock(&table.lock);
}

/* Lets the hanging reads go one after the other until the step's row is begun. */
static void *unblock_until_begun(void *argument)
{
    int32_t wanted = *(int32_t *)argument;
    for (int32_t token = 30; times_read(wanted) == 0; token++) {
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* time for the step to say what it needs */
        set_blocked(token, token + 1, false);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return NULL;
}

static void a_steps_rows_are_read_before_those_only_asked_for(void **state)
{
    (void)state;
    pthread_t helper;
    int32_t ahead[] = {30, 31, 32, 33, 34, 35, 36}, step[] = {36, 50};
    set_blocked(30, 36, true); /* both threads hang */
    lookup_reader_ask(reader, ahead, 7);
    wait_for(table.begun, 31, 1);
    assert_int_equal(pthread_create(&helper, NULL, unblock_until_begun, &step[0]), 0);
    assert_int_equal(hold(step, 2), 2);
    pthread_join(helper, NULL);
    assert_int_equal(times_read(35), 0); /* it came before 36, but waits */
}

static void what_a_step_holds_stays(void **state)
{
    (void)state;
    const void *rows[MAX_ROWS];
    int32_t step[] = {1, 2, 3, 4, 5, 6}, others[CAPACITY / 2];
    lookup_reader_hold(reader, step, 6, rows);
    for (int32_t round = 0; round < 6; round++) {
        for (int i = 0; i < CAPACITY / 2; i++)
            others[i] = 7 + (round * (CAPACITY / 2) + i) % (N_TOKENS - 7);
        lookup_reader_ask(reader, others, CAPACITY / 2);
        wait_for(table.begun, others[0], 1);
    }
    for (int i = 0; i < 6; i++) {
        unsigned char expected[ROW_BYTES];
        expected_row(step[i], expected);
        assert_memory_equal(rows[i], expected, ROW_BYTES);
    }
}

static void the_longest_unused_rows_make_room(void **state)
{
    (void)state;
    for (int32_t token = 0; token < CAPACITY; token++)
        hold(&token, 1);
    for (int32_t token = 0; token < CAPACITY; token++)
        assert_int_equal(times_read(token), 1);
    hold((int32_t[]){0}, 1); /* used again: not the next to go */
    hold((int32_t[]){CAPACITY}, 1);
    hold((int32_t[]){0}, 1);
    assert_int_equal(times_read(0), 1);
    hold((int32_t[]){1}, 1);
    assert_int_equal(times_read(1), 2);
}

/* Asking for more than there is room for takes half of the room, and a step still gets its rows. */
static void more_than_there_is_room_for_is_left_out(void **state)
{
    (void)state;
    int32_t many[N_TOKENS], step[] = {58, 59, 60, 61, 62, 63};
    for (int32_t i = 0; i < N_TOKENS; i++)
        many[i] = i;
    set_blocked(0, N_THREADS, true);
    lookup_reader_ask(reader, many, N_TOKENS);
    lookup_reader_ask(reader, many + CAPACITY / 2, N_TOKENS - CAPACITY / 2); /* now it is full */
    wait_for(table.begun, 0, 1);
    wait_for(table.begun, 1, 1);
    set_blocked(0, 1, false);
    assert_int_equal(hold(step, 6), 6);
    assert_int_equal(times_read(CAPACITY), 0);
}

static void destroying_does_not_wait_for_what_was_only_asked_for(void **state)
{
    (void)state;
    int32_t many[CAPACITY / 2];
    for (int32_t i = 0; i < CAPACITY / 2; i++)
        many[i] = i;
    set_blocked(0, N_THREADS, true);
    lookup_reader_ask(reader, many, CAPACITY / 2);
    wait_for(table.begun, 1, 1);
    close_reader(NULL); /* lets the two go */
    int n_read = 0;
    for (int32_t i = 0; i < CAPACITY / 2; i++)
        n_read += table.begun[i];
    assert_true(n_read >= N_THREADS);
    assert_int_equal(open_reader(NULL), 0);
}

/* Random steps and questions: always the right rows. */
static void any_mix_gives_the_right_rows(void **state)
{
    (void)state;
    uint32_t random = 1;
    for (int round = 0; round < 2000; round++) {
        int32_t tokens[MAX_ROWS], ahead[CAPACITY];
        for (int i = 0; i < CAPACITY; i++) {
            random = random * 1664525u + 1013904223u;
            ahead[i] = (int32_t)(random >> 26);
        }
        memcpy(tokens, ahead + 3, sizeof tokens);
        lookup_reader_ask(reader, ahead, (int)(random >> 8) % CAPACITY);
        hold(tokens, 1 + round % MAX_ROWS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_come_as_they_stand_in_the_table, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(rows_that_were_asked_for_are_not_waited_for, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(slow_reads_hold_up_nobody_who_does_not_need_them, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(a_step_waits_for_its_own_rows_alone, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(a_steps_rows_are_read_before_those_only_asked_for, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(what_a_step_holds_stays, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(the_longest_unused_rows_make_room, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(more_than_there_is_room_for_is_left_out, open_reader, close_reader),
        cmocka_unit_test_setup_teardown(destroying_does_not_wait_for_what_was_only_asked_for, open_reader,
                                        close_reader),
        cmocka_unit_test_setup_teardown(any_mix_gives_the_right_rows, open_reader, close_reader),
    };
    return cmocka_run_group_tests_name("lookup reader", tests, NULL, NULL);
}
