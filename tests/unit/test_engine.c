/* The engine with real threads and a real loop, a fake executor and a fake tokenizer. What a greedy generation must say
 * follows from its prompt alone, so every text is compared with one that is computed here. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "daemon/engine.h"
#include "daemon/engine_metrics.h"
#include "daemon/tokenizer.h"
#include "daemon/utf8_stream.h"
#include "tests/unit/fake_executor.h"

enum {
    FAKE_VOCABULARY = 64,
    CONTEXT = 300,
    MAX_TEXT = 8192,
};

/* Words, letters, halves of characters, a byte that is none. */
static const char *fake_piece(int32_t token, size_t *length)
{
    static const char *const pieces[] = {"?",  "<s>", "</s>", "\xc3", "\xa9", "\xff", "\xe2\x82", "\xac", "ab", "abc",
                                         "bc", "the", " a",   " the", "x",    "y",    "\n",       " ",    "a",  "b"};
    static const char letters[] = "cdefghijklmnopqrstuvwzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (token < (int32_t)(sizeof pieces / sizeof *pieces)) {
        *length = strlen(pieces[token]);
        return pieces[token];
    }
    *length = 1;
    return &letters[token - (int32_t)(sizeof pieces / sizeof *pieces)];
}

/* The whole interface is here, so that the linker has no reason to take the real tokenizer. */

enum {
    FAKE_BOS = 1,
    FAKE_EOS = 2,
};

enum npu_status tokenizer_create(struct tokenizer **ret_tokenizer, const struct gguf_file *file,
                                 struct npu_error *error)
{
    (void)ret_tokenizer;
    (void)file;
    return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "a fake needs no file");
}

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    (void)tokenizer;
}

enum npu_status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, bool add_special,
                                 bool parse_special, int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    (void)tokenizer, (void)text, (void)length, (void)add_special, (void)parse_special, (void)ret_tokens, (void)ret_n;
    return npu_error_set(error, NPU_ERROR_UNSUPPORTED, "a fake does not encode");
}

const char *tokenizer_piece(const struct tokenizer *tokenizer, int32_t token, size_t *length)
{
    (void)tokenizer;
    return fake_piece(token, length);
}

bool tokenizer_is_control(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    return token == FAKE_BOS || token == FAKE_EOS;
}

bool tokenizer_is_end_of_generation(const struct tokenizer *tokenizer, int32_t token)
{
    (void)tokenizer;
    return token == FAKE_EOS;
}

int32_t tokenizer_n_vocab(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_VOCABULARY;
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_BOS;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_EOS;
}

/* --- the fixture -------------------------------------------------------------------------------------------------- */

struct fixture {
    uv_loop_t loop;
    struct fake_executor *fake;
    struct engine *engine;
    bool closed;
};

struct job {
    struct fixture *fixture;
    struct generation *generation;
    char text[MAX_TEXT];
    size_t text_length;
    struct generation_token tokens[1024]; /* top: owned */
    int n_tokens, n_events;
    bool finished;
    enum finish_reason reason;
    enum generation_failure failure;
    uint32_t retry_after_ms;
    char message[512];
    struct generation_usage usage;
    void (*then)(struct job *job); /* after each event but the last */
    struct job *other;
};

static const struct fake_options default_fake = {.n_blocks = 64,
                                                 .n_vocab = FAKE_VOCABULARY,
                                                 .max_context = CONTEXT,
                                                 .max_rows = 64,
                                                 .max_tables = 8,
                                                 .max_returning = 8};
static const struct engine_options default_options = {.context = CONTEXT, .parallel = 4, .step_target_ms = 50};

static void set_up(struct fixture *f, struct fake_options fake, struct engine_options options, unsigned sleep_us)
{
    memset(f, 0, sizeof *f);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    f->fake = fake_create(fake);
    f->fake->sleep_us = sleep_us;
    struct npu_error error;
    assert_int_equal(engine_create(&f->engine, &options, &f->fake->base, NULL, &f->loop, &error), NPU_OK);
}

static void on_closed(void *context)
{
    ((struct fixture *)context)->closed = true;
}

static void tear_down(struct fixture *f)
{
    engine_close(f->engine, on_closed, f);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_true(f->closed);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    executor_destroy(&f->fake->base);
}

static void on_event(struct generation_event *event, void *context)
{
    struct job *job = context;
    assert_ptr_equal(event->generation, job->generation);
    assert_false(job->finished);
    job->n_events++;
    assert_true(job->text_length + event->text_length < MAX_TEXT);
    if (event->text_length > 0)
        memcpy(job->text + job->text_length, event->text, event->text_length);
    job->text_length += event->text_length;
    for (int i = 0; i < event->n_tokens; i++) {
        job->tokens[job->n_tokens++] = event->tokens[i];
        event->tokens[i].top = NULL;
    }
    if (event->finished) {
        job->finished = true;
        job->reason = event->reason;
        job->failure = event->failure;
        job->retry_after_ms = event->retry_after_ms;
        job->usage = event->usage;
        memcpy(job->message, event->message, sizeof job->message);
    }
    generation_event_destroy(event);
    if (!job->finished && job->then != NULL)
        job->then(job);
}

static void fill_prompt(int32_t *tokens, int32_t n, int32_t seed)
{
    for (int32_t i = 0; i < n; i++)
        tokens[i] = 3 + (i * 7 + seed * 13 + i * i * (seed % 5)) % (FAKE_VOCABULARY - 3);
}

/* Greedy, seed names the prompt. */
static struct job *new_job(struct fixture *f, int32_t n_prompt, int32_t seed, int32_t max_tokens)
{
    struct job *job = calloc(1, sizeof *job);
    job->fixture = f;
    job->generation = generation_create();
    assert_non_null(job->generation);
    job->generation->prompt = malloc((size_t)n_prompt * sizeof(int32_t));
    fill_prompt(job->generation->prompt, n_prompt, seed);
    job->generation->n_prompt = n_prompt;
    job->generation->max_tokens = max_tokens;
    job->generation->sampling.temperature = 0;
    job->generation->on_event = on_event;
    job->generation->context = job;
    return job;
}

static void add_stop(struct job *job, const char *stop)
{
    struct generation *g = job->generation;
    g->stops = realloc(g->stops, (size_t)(g->n_stops + 1) * sizeof *g->stops);
    g->stop_lengths = realloc(g->stop_lengths, (size_t)(g->n_stops + 1) * sizeof *g->stop_lengths);
    g->stop_lengths[g->n_stops] = strlen(stop);
    g->stops[g->n_stops++] = strdup(stop);
}

static void submit(struct job *job)
{
    engine_submit(job->fixture->engine, job->generation);
}

static void run_until_finished(struct job *job)
{
    while (!job->finished)
        uv_run(&job->fixture->loop, UV_RUN_ONCE);
}

static void end_job(struct job *job)
{
    for (int i = 0; i < job->n_tokens; i++)
        free(job->tokens[i].top);
    generation_destroy(job->generation);
    free(job);
}

/* --- what a greedy generation must say ---------------------------------------------------------------------------- */

struct expectation {
    int32_t tokens[CONTEXT + 1]; /* of the output */
    int32_t n_tokens;
    char text[MAX_TEXT]; /* of the output */
    size_t text_length;
    enum finish_reason reason;
};

static int32_t best_allowed(const int32_t *history, int32_t n, bool ignore_eos)
{
    float logits[FAKE_VOCABULARY];
    fake_logits(history, n, FAKE_VOCABULARY, logits);
    int32_t best = -1;
    for (int32_t i = 0; i < FAKE_VOCABULARY; i++)
        if ((best < 0 || logits[i] > logits[best]) && !(ignore_eos && i == FAKE_EOS))
            best = i;
    return best;
}

static void repair(const struct expectation *e, char *text, size_t *length)
{
    struct utf8_stream stream;
    utf8_stream_init(&stream);
    *length = 0;
    for (int32_t i = 0; i < e->n_tokens; i++) {
        size_t n;
        const char *piece = fake_piece(e->tokens[i], &n);
        if (e->tokens[i] == FAKE_BOS)
            continue; /* control tokens have no text */
        *length += utf8_stream_push(&stream, piece, n, text + *length);
    }
    *length += utf8_stream_flush(&stream, text + *length);
    text[*length] = '\0';
}

/* The first stop in the whole text decides; tokens beyond it do not count here. */
static void expect(const struct generation *g, struct expectation *e)
{
    int32_t history[2 * CONTEXT];
    memcpy(history, g->prompt, (size_t)g->n_prompt * sizeof *history);
    memset(e, 0, sizeof *e);
    e->reason = FINISH_LENGTH;
    while (e->n_tokens != g->max_tokens && g->n_prompt + e->n_tokens <= CONTEXT) {
        int32_t token = best_allowed(history, g->n_prompt + e->n_tokens, g->ignore_eos);
        if (token == FAKE_EOS) {
            e->reason = FINISH_STOP;
            break;
        }
        history[g->n_prompt + e->n_tokens] = token;
        e->tokens[e->n_tokens++] = token;
    }
    repair(e, e->text, &e->text_length);
    size_t first = e->text_length;
    for (int i = 0; i < g->n_stops; i++) {
        const char *at = strstr(e->text, g->stops[i]);
        if (at != NULL && (size_t)(at - e->text) < first) {
            first = (size_t)(at - e->text);
            e->reason = FINISH_STOP;
        }
    }
    e->text_length = first;
}

static void check_greedy(const struct job *job)
{
    static struct expectation e;
    const struct generation *g = job->generation;
    expect(g, &e);
    assert_int_equal(job->reason, e.reason);
    assert_int_equal(job->text_length, e.text_length);
    assert_memory_equal(job->text, e.text, e.text_length);
    assert_int_equal(job->usage.prompt_tokens, g->n_prompt);
    for (int i = 0; i < job->n_tokens; i++)
        assert_int_equal(job->tokens[i].token, e.tokens[i]);
    if (g->n_stops == 0) {
        assert_int_equal(job->n_tokens, e.n_tokens);
        assert_int_equal(job->usage.completion_tokens, e.n_tokens);
    }
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

static void a_generation_says_what_the_model_says(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    static const int32_t lengths[] = {1, 31, 32, 33, 100, CONTEXT - 1, CONTEXT};
    for (int i = 0; i < 7; i++) {
        struct job *job = new_job(&f, lengths[i], i, -1);
        job->generation->ignore_eos = i % 2;
        submit(job);
        run_until_finished(job);
        check_greedy(job);
        assert_true(job->usage.first_token_ms >= job->usage.queue_ms);
        end_job(job);
    }
    tear_down(&f);
}

static void many_generations_at_once_say_what_they_say_alone(void **state)
{
    (void)state;
    struct fixture f;
    struct fake_options fake = default_fake;
    fake.n_blocks = 20; /* they do not all fit */
    set_up(&f, fake, default_options, 0);
    struct job *jobs[40];
    for (int i = 0; i < 40; i++) {
        jobs[i] = new_job(&f, 1 + i * 5, i % 7, 10 + i);
        submit(jobs[i]);
    }
    for (int i = 0; i < 40; i++) {
        run_until_finished(jobs[i]);
        check_greedy(jobs[i]);
        end_job(jobs[i]);
    }
    tear_down(&f);
}

static void a_second_turn_is_cached_and_says_from_where(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    struct job *job = new_job(&f, 100, 1, 20);
    job->generation->ignore_eos = true;
    job->generation->session_key = strdup("chat");
    submit(job);
    run_until_finished(job);
    assert_int_equal(job->usage.cached_tokens, 0);
    assert_int_equal(job->usage.cache.miss, CACHE_MISS_FIRST_USE);
    struct job *second = new_job(&f, 150, 2, 5);
    memcpy(second->generation->prompt, job->generation->prompt, 100 * sizeof(int32_t));
    for (int i = 0; i < 20; i++)
        second->generation->prompt[100 + i] = job->tokens[i].token;
    second->generation->session_key = strdup("chat");
    submit(second);
    run_until_finished(second);
    check_greedy(second);
    assert_int_equal(second->usage.cached_tokens, 119);
    assert_int_equal(second->usage.cache.source, CACHE_SOURCE_RESIDENT);
    assert_true(second->usage.cache.session_id == job->usage.cache.session_id);
    end_job(job);
    end_job(second);
    tear_down(&f);
}

static void stop_strings_end_the_text_before_them(void **state)
{
    (void)state;
    static const char *const stops[] = {"ab", "abc", "the", "\xc3\xa9", "xy", "\n", " a", "A", "bcd", "\xef\xbf\xbd"};
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    for (int i = 0; i < 40; i++) {
        struct job *job = new_job(&f, 3 + i, i, 120);
        job->generation->ignore_eos = true;
        for (int j = 0; j <= i % 4; j++)
            add_stop(job, stops[(i * 3 + j * 7) % 10]);
        submit(job);
        run_until_finished(job);
        check_greedy(job);
        /* Tokens come for the text that came, and no further. */
        uint32_t end = 0;
        for (int j = 0; j < job->n_tokens; j++) {
            assert_true(job->tokens[j].text_start <= job->text_length);
            assert_true(job->tokens[j].text_start >= end || job->tokens[j].text_start + 3 >= end);
            end = job->tokens[j].text_start + job->tokens[j].text_length;
        }
        end_job(job);
    }
    tear_down(&f);
}

static void echo_gives_the_prompt_first_with_its_logprobs(void **state)
{
    (void)state;
    struct fixture f;
    struct fake_options fake = default_fake;
    fake.max_returning = 3;
    set_up(&f, fake, default_options, 0);
    for (int max_tokens = 0; max_tokens <= 6; max_tokens += 6) {
        for (int n_logprobs = -1; n_logprobs <= 5; n_logprobs += 3) {
            struct job *job = new_job(&f, 70, 3, max_tokens);
            struct generation *g = job->generation;
            g->prompt[0] = FAKE_BOS;
            g->prompt[10] = 8;
            g->echo = true;
            g->ignore_eos = true;
            g->n_logprobs = n_logprobs;
            submit(job);
            run_until_finished(job);
            assert_int_equal(job->reason, FINISH_LENGTH);
            assert_int_equal(job->n_tokens, 70 + max_tokens);
            assert_int_equal(job->usage.completion_tokens, max_tokens);
            int32_t history[CONTEXT];
            for (int i = 0; i < job->n_tokens; i++) {
                const struct generation_token *token = &job->tokens[i];
                history[i] = token->token;
                if (i < 70)
                    assert_int_equal(token->token, g->prompt[i]);
                assert_int_equal(token->has_logprob, n_logprobs >= 0 && i > 0);
                if (!token->has_logprob)
                    continue;
                float logits[FAKE_VOCABULARY];
                double sum = 0;
                fake_logits(history, i, FAKE_VOCABULARY, logits);
                for (int j = 0; j < FAKE_VOCABULARY; j++)
                    sum += exp((double)logits[j]);
                assert_true(fabs((double)token->logprob - ((double)logits[token->token] - log(sum))) < 1e-4);
                assert_int_equal(token->n_top, n_logprobs);
                if (n_logprobs > 0)
                    assert_int_equal(token->top[0].token, fake_best(history, i, FAKE_VOCABULARY));
            }
            end_job(job);
        }
    }
    tear_down(&f);
}

static void reading_a_prompt_without_output_warms_its_session(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    struct job *job = new_job(&f, 200, 3, 0);
    submit(job);
    run_until_finished(job);
    assert_int_equal(job->reason, FINISH_LENGTH);
    assert_int_equal(job->text_length + (size_t)job->n_tokens, 0);
    struct job *next = new_job(&f, 200, 3, 4);
    submit(next);
    run_until_finished(next);
    assert_int_equal(next->usage.cached_tokens, 199);
    check_greedy(next);
    end_job(job);
    end_job(next);
    tear_down(&f);
}

static void sampled_text_depends_on_the_seed_and_not_on_the_company(void **state)
{
    (void)state;
    static char texts[6][MAX_TEXT];
    for (int crowd = 0; crowd <= 10; crowd += 10) {
        struct fixture f;
        set_up(&f, default_fake, default_options, 0);
        struct job *others[10];
        for (int i = 0; i < crowd; i++) {
            others[i] = new_job(&f, 10 + i * 9, i, 50);
            submit(others[i]);
        }
        for (int i = 0; i < 6; i++) {
            struct job *job = new_job(&f, 50, 4, 60);
            job->generation->sampling.temperature = 0.9f;
            job->generation->sampling.seed = (uint64_t)i / 2;
            job->generation->sampling.top_k = i % 2 ? 20 : 0;
            job->generation->sampling.top_p = 0.95f;
            submit(job);
            run_until_finished(job);
            job->text[job->text_length] = '\0';
            if (crowd == 0)
                strcpy(texts[i], job->text);
            else
                assert_string_equal(job->text, texts[i]);
            end_job(job);
        }
        for (int i = 0; i < crowd; i++) {
            run_until_finished(others[i]);
            check_greedy(others[i]);
            end_job(others[i]);
        }
        tear_down(&f);
    }
    assert_string_not_equal(texts[0], texts[2]);
}

static void cancel_now(struct job *job)
{
    engine_cancel(job->fixture->engine, job->generation);
}

static void cancelling_ends_one_and_disturbs_no_other(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 200);
    struct job *jobs[12];
    for (int i = 0; i < 12; i++) {
        jobs[i] = new_job(&f, 20 + i * 20, i, 40);
        jobs[i]->generation->ignore_eos = true;
        if (i % 3 == 0)
            jobs[i]->then = cancel_now; /* while decoding */
        submit(jobs[i]);
        if (i % 3 == 1)
            cancel_now(jobs[i]); /* in the queue */
    }
    for (int i = 0; i < 12; i++) {
        run_until_finished(jobs[i]);
        if (i % 3 == 2)
            check_greedy(jobs[i]);
        else
            assert_int_equal(jobs[i]->reason, FINISH_CANCELLED);
        cancel_now(jobs[i]); /* too late: harmless */
        end_job(jobs[i]);
    }
    tear_down(&f);
}

static void a_failing_device_ends_the_generations_of_its_step(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    f.fake->fail_steps = 2;
    struct job *job = new_job(&f, 50, 1, 10);
    submit(job);
    run_until_finished(job);
    assert_int_equal(job->reason, FINISH_ERROR);
    assert_int_equal(job->failure, FAILURE_DEVICE);
    assert_non_null(strstr(job->message, "told to fail"));
    struct job *next = new_job(&f, 50, 1, 10);
    submit(next);
    run_until_finished(next);
    check_greedy(next);
    end_job(job);
    end_job(next);
    tear_down(&f);
}

static void a_prompt_that_can_never_fit_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    struct job *job = new_job(&f, CONTEXT + 1, 1, 10);
    submit(job);
    run_until_finished(job);
    assert_int_equal(job->failure, FAILURE_TOO_LONG);
    assert_non_null(strstr(job->message, "301"));
    assert_non_null(strstr(job->message, "300"));
    end_job(job);
    tear_down(&f);
}

static void the_queue_is_bounded_by_requests(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_options options = default_options;
    options.parallel = 2;
    options.queue = 3;
    set_up(&f, default_fake, options, 500);
    struct job *jobs[20];
    int n_refused = 0;
    for (int i = 0; i < 20; i++) {
        jobs[i] = new_job(&f, 20, i, 100);
        jobs[i]->generation->ignore_eos = true;
        jobs[i]->generation->joins_previous = i > 0 && i < 10; /* one request of ten choices, ten of one */
        jobs[i]->generation->request_size = i < 10 ? 10 : 1;
        submit(jobs[i]);
    }
    for (int i = 0; i < 20; i++) {
        run_until_finished(jobs[i]);
        if (jobs[i]->reason == FINISH_ERROR) {
            assert_int_equal(jobs[i]->failure, FAILURE_QUEUE_FULL);
            assert_true(jobs[i]->retry_after_ms >= 1000);
            assert_true(i >= 12);
            n_refused++;
        } else {
            check_greedy(jobs[i]);
        }
    }
    assert_true(n_refused >= 5);
    for (int i = 0; i < 20; i++)
        end_job(jobs[i]);
    tear_down(&f);
}

static void one_request_is_served_beside_another_of_many_long_generations(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_options options = default_options;
    options.queue = 1; /* of requests: the one of many is servable */
    set_up(&f, default_fake, options, 200);
    struct job *jobs[30], *other;
    struct engine_metrics metrics = {0};
    for (int i = 0; i < 30; i++) {
        jobs[i] = new_job(&f, 20, 1 + i % 2, 250);
        jobs[i]->generation->ignore_eos = true;
        jobs[i]->generation->joins_previous = i > 0;
        jobs[i]->generation->request_size = 30;
        submit(jobs[i]);
    }
    while (jobs[0]->n_tokens == 0)
        uv_run(&f.loop, UV_RUN_ONCE);
    while (metrics.waiting != 27 || metrics.waiting_requests != 1) /* three of four places are taken */
        engine_metrics_get(f.engine, &metrics);
    for (int i = 0; i < 3; i++) {
        other = new_job(&f, 20, 3, 2);
        other->generation->priority = i;
        other->generation->max_wait_ms = 1000000;
        submit(other);
        run_until_finished(other);
        assert_true(other->reason != FINISH_ERROR);
        check_greedy(other);
        end_job(other);
    }
    assert_false(jobs[29]->finished);
    for (int i = 0; i < 30; i++) {
        run_until_finished(jobs[i]);
        check_greedy(jobs[i]);
        end_job(jobs[i]);
    }
    tear_down(&f);
}

static void waiting_and_running_have_their_own_limits(void **state)
{
    (void)state;
    struct fixture f;
    struct engine_options options = default_options;
    options.parallel = 1;
    set_up(&f, default_fake, options, 1000);
    struct job *long_one = new_job(&f, 20, 1, 250), *impatient = new_job(&f, 20, 2, 10),
               *bounded = new_job(&f, 20, 3, 10);
    long_one->generation->ignore_eos = true;
    impatient->generation->max_wait_ms = 20;
    bounded->generation->timeout_ms = 30;
    submit(long_one);
    submit(impatient);
    submit(bounded);
    run_until_finished(impatient);
    run_until_finished(bounded);
    assert_false(long_one->finished);
    assert_int_equal(impatient->failure, FAILURE_WAIT);
    assert_int_equal(bounded->failure, FAILURE_TIMEOUT);
    run_until_finished(long_one);
    check_greedy(long_one);
    end_job(long_one);
    end_job(impatient);
    end_job(bounded);
    tear_down(&f);
}

static void start_other_and_pause(struct job *job)
{
    job->then = NULL;
    engine_pause(job->fixture->engine, job->generation, true);
    submit(job->other);
}

static void a_paused_generation_waits_and_others_go_on(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 300);
    struct job *slow = new_job(&f, 20, 1, 200), *other = new_job(&f, 20, 2, 100);
    slow->generation->ignore_eos = other->generation->ignore_eos = true;
    slow->then = start_other_and_pause;
    slow->other = other;
    submit(slow);
    run_until_finished(other);
    check_greedy(other);
    assert_false(slow->finished);
    struct engine_metrics metrics;
    engine_metrics_get(f.engine, &metrics);
    assert_int_equal(metrics.paused, 1);
    engine_pause(f.engine, slow->generation, false);
    run_until_finished(slow);
    check_greedy(slow);
    end_job(slow);
    end_job(other);
    tear_down(&f);
}

static void closing_cancels_what_is_left_and_tells_everyone(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 500);
    struct job *jobs[10];
    for (int i = 0; i < 10; i++) {
        jobs[i] = new_job(&f, 100, i, -1);
        jobs[i]->generation->ignore_eos = true;
        submit(jobs[i]);
    }
    while (jobs[0]->n_events == 0)
        uv_run(&f.loop, UV_RUN_ONCE);
    engine_close(f.engine, on_closed, &f);
    jobs[9]->other = new_job(&f, 5, 1, 1);
    submit(jobs[9]->other); /* while it closes */
    uv_run(&f.loop, UV_RUN_DEFAULT);
    assert_true(f.closed);
    assert_true(jobs[9]->other->finished);
    assert_int_equal(jobs[9]->other->reason, FINISH_CANCELLED);
    end_job(jobs[9]->other);
    for (int i = 0; i < 10; i++) {
        assert_true(jobs[i]->finished);
        assert_int_equal(jobs[i]->reason, FINISH_CANCELLED);
        end_job(jobs[i]);
    }
    assert_int_equal(uv_loop_close(&f.loop), 0);
    executor_destroy(&f.fake->base);
}

static void the_heart_beats_while_there_is_nothing_to_do(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    uint64_t before = engine_heartbeat_us(f.engine);
    while (engine_heartbeat_us(f.engine) == before)
        uv_sleep(20);
    tear_down(&f);
}

/* --- requests about sessions -------------------------------------------------------------------------------------- */

static void on_done(struct engine_request *request, void *context)
{
    (void)request;
    *(bool *)context = true;
}

static struct engine_request *ask(struct fixture *f, enum engine_verb verb, const char *id, int32_t n_tokens,
                                  const char *key)
{
    bool done = false;
    struct engine_request *request = engine_request_create(verb);
    snprintf(request->session, sizeof request->session, "%s", id);
    request->n_tokens = n_tokens;
    request->key = key != NULL ? strdup(key) : NULL;
    request->on_done = on_done;
    request->context = &done;
    engine_ask(f->engine, request);
    while (!done)
        uv_run(&f->loop, UV_RUN_ONCE);
    return request;
}

static enum engine_answer answer_of(struct engine_request *request)
{
    enum engine_answer answer = request->answer;
    engine_request_destroy(request);
    return answer;
}

static void sessions_are_listed_forked_cut_pinned_and_deleted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 0);
    assert_int_equal(answer_of(ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL)), ENGINE_ANSWER_OK);
    struct job *job = new_job(&f, 100, 1, 20);
    job->generation->ignore_eos = true;
    job->generation->session_key = strdup("chat");
    submit(job);
    run_until_finished(job);
    end_job(job);

    struct engine_request *list = ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL);
    assert_int_equal(list->n_sessions, 1);
    const struct session_description *only = &list->sessions[0];
    assert_string_equal(only->key, "chat");
    assert_int_equal(only->n_tokens, 119);
    assert_int_equal(only->n_resident, 119);
    assert_int_equal(only->blocks_own, 4);
    assert_int_equal(only->blocks_shared, 0);
    assert_int_equal(only->bytes, 4 * f.fake->base.block_bytes);
    assert_int_equal(only->turns, 1);
    assert_true(!only->busy && only->resident && !only->pinned);

    struct engine_request *fork = ask(&f, ENGINE_FORK_SESSION, only->id, 70, "branch");
    assert_int_equal(fork->answer, ENGINE_ANSWER_OK);
    assert_int_equal(fork->n_sessions, 1);
    assert_int_equal(fork->sessions[0].n_resident, 70);
    assert_int_equal(fork->sessions[0].blocks_shared, 2);
    assert_int_equal(answer_of(ask(&f, ENGINE_PIN_SESSION, fork->sessions[0].id, 0, NULL)), ENGINE_ANSWER_OK);
    assert_int_equal(answer_of(ask(&f, ENGINE_TRUNCATE_SESSION, fork->sessions[0].id, 71, NULL)),
                     ENGINE_ANSWER_REFUSED);
    assert_int_equal(answer_of(ask(&f, ENGINE_TRUNCATE_SESSION, fork->sessions[0].id, 33, NULL)), ENGINE_ANSWER_OK);
    struct engine_request *one = ask(&f, ENGINE_LIST_SESSIONS, fork->sessions[0].id, 0, NULL);
    assert_int_equal(one->n_sessions, 1);
    assert_int_equal(one->sessions[0].n_tokens, 33);
    assert_true(one->sessions[0].pinned);
    engine_request_destroy(one);
    assert_int_equal(answer_of(ask(&f, ENGINE_UNPIN_SESSION, fork->sessions[0].id, 0, NULL)), ENGINE_ANSWER_OK);

    assert_int_equal(answer_of(ask(&f, ENGINE_DELETE_SESSION, fork->sessions[0].id, 0, NULL)), ENGINE_ANSWER_OK);
    assert_int_equal(answer_of(ask(&f, ENGINE_DELETE_SESSION, fork->sessions[0].id, 0, NULL)), ENGINE_ANSWER_UNKNOWN);
    assert_int_equal(answer_of(ask(&f, ENGINE_PIN_SESSION, "xyz", 0, NULL)), ENGINE_ANSWER_UNKNOWN);
    assert_int_equal(answer_of(ask(&f, ENGINE_DELETE_SESSION, only->id, 0, NULL)), ENGINE_ANSWER_OK);
    engine_request_destroy(fork);
    engine_request_destroy(list);
    list = ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL);
    assert_int_equal(list->n_sessions, 0);
    engine_request_destroy(list);
    tear_down(&f);
}

static void busy_sessions_say_so(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, default_fake, default_options, 1000);
    struct job *job = new_job(&f, 10, 1, -1);
    job->generation->ignore_eos = true;
    submit(job);
    while (job->n_events == 0)
        uv_run(&f.loop, UV_RUN_ONCE);
    struct engine_request *list = ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL);
    assert_int_equal(list->n_sessions, 1);
    assert_true(list->sessions[0].busy);
    assert_int_equal(answer_of(ask(&f, ENGINE_DELETE_SESSION, list->sessions[0].id, 0, NULL)), ENGINE_ANSWER_BUSY);
    assert_int_equal(answer_of(ask(&f, ENGINE_TRUNCATE_SESSION, list->sessions[0].id, 1, NULL)), ENGINE_ANSWER_BUSY);
    assert_int_equal(answer_of(ask(&f, ENGINE_FORK_SESSION, list->sessions[0].id, 10, NULL)), ENGINE_ANSWER_OK);
    engine_request_destroy(list);
    cancel_now(job);
    run_until_finished(job);
    end_job(job);
    tear_down(&f);
}

/* --- everything at once ------------------------------------------------------------------------------------------- */

static uint32_t random_below(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*random >> 33) % n);
}

static void random_traffic_gets_the_right_answers_and_leaves_no_block_behind(void **state)
{
    (void)state;
    struct fixture f;
    struct fake_options fake = default_fake;
    fake.n_blocks = 24;
    struct engine_options options = default_options;
    options.parallel = 6;
    set_up(&f, fake, options, 0);
    enum {
        AT_ONCE = 16,
        TOTAL = 600
    };
    struct job *jobs[AT_ONCE] = {NULL};
    static const char *const stops[] = {"ab", "the", "\n", "xy"};
    uint64_t random = 11;
    for (int started = 0, ended = 0; ended < TOTAL;) {
        for (int i = 0; i < AT_ONCE; i++) {
            if (jobs[i] == NULL && started < TOTAL) {
                jobs[i] = new_job(&f, 1 + (int32_t)random_below(&random, 150), (int32_t)random_below(&random, 4),
                                  1 + (int32_t)random_below(&random, 80));
                if (random_below(&random, 3) == 0)
                    add_stop(jobs[i], stops[random_below(&random, 4)]);
                if (random_below(&random, 4) == 0)
                    jobs[i]->generation->session_key = strdup(random_below(&random, 2) ? "a" : "b");
                if (random_below(&random, 5) == 0)
                    jobs[i]->then = cancel_now;
                if (random_below(&random, 4) == 0)
                    jobs[i]->generation->n_logprobs = 2;
                submit(jobs[i]);
                started++;
                if (random_below(&random, 10) == 0)
                    cancel_now(jobs[i]);
            } else if (jobs[i] != NULL && jobs[i]->finished) {
                if (jobs[i]->reason != FINISH_CANCELLED)
                    check_greedy(jobs[i]);
                end_job(jobs[i]);
                jobs[i] = NULL;
                ended++;
            }
        }
        if (random_below(&random, 20) == 0)
            engine_request_destroy(ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL));
        if (ended < TOTAL)
            uv_run(&f.loop, UV_RUN_NOWAIT);
    }
    struct engine_request *list = ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL);
    for (int i = 0; i < list->n_sessions; i++)
        assert_int_equal(answer_of(ask(&f, ENGINE_DELETE_SESSION, list->sessions[i].id, 0, NULL)), ENGINE_ANSWER_OK);
    engine_request_destroy(list);
    struct engine_metrics metrics;
    do {
        engine_request_destroy(ask(&f, ENGINE_LIST_SESSIONS, "", 0, NULL));
        engine_metrics_get(f.engine, &metrics);
    } while (metrics.sessions_idle + metrics.sessions_evicted > 0);
    assert_int_equal(metrics.kv.used, 0);
    assert_int_equal(metrics.submitted, TOTAL);
    assert_int_equal(
        metrics.finished[FINISH_STOP] + metrics.finished[FINISH_LENGTH] + metrics.finished[FINISH_CANCELLED], TOTAL);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_generation_says_what_the_model_says),
        cmocka_unit_test(many_generations_at_once_say_what_they_say_alone),
        cmocka_unit_test(a_second_turn_is_cached_and_says_from_where),
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(echo_gives_the_prompt_first_with_its_logprobs),
        cmocka_unit_test(reading_a_prompt_without_output_warms_its_session),
        cmocka_unit_test(sampled_text_depends_on_the_seed_and_not_on_the_company),
        cmocka_unit_test(cancelling_ends_one_and_disturbs_no_other),
        cmocka_unit_test(a_failing_device_ends_the_generations_of_its_step),
        cmocka_unit_test(a_prompt_that_can_never_fit_is_refused),
        cmocka_unit_test(the_queue_is_bounded_by_requests),
        cmocka_unit_test(one_request_is_served_beside_another_of_many_long_generations),
        cmocka_unit_test(waiting_and_running_have_their_own_limits),
        cmocka_unit_test(a_paused_generation_waits_and_others_go_on),
        cmocka_unit_test(closing_cancels_what_is_left_and_tells_everyone),
        cmocka_unit_test(the_heart_beats_while_there_is_nothing_to_do),
        cmocka_unit_test(sessions_are_listed_forked_cut_pinned_and_deleted),
        cmocka_unit_test(busy_sessions_say_so),
        cmocka_unit_test(random_traffic_gets_the_right_answers_and_leaves_no_block_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
