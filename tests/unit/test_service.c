/* Completions over HTTP, from a request to its answer. */
#include "tests/unit/service_fixture.h"

/* ---- tests ---- */

static void until_the_model_is_there_everything_is_503(void **state)
{
    struct fixture *f = *state;
    static const char *const requests[] = {"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"};
    int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
    for (int i = 0; i < 2; i++) {
        http_client_send(&f->loop, client, requests[i], strlen(requests[i]));
        receive(f, client, "model_loading");
        assert_memory_equal(received, "HTTP/1.1 503 ", 13);
        assert_non_null(strstr(received, "Retry-After: 1\r\n"));
    }
    int other = post(f, "{\"prompt\":\"a\"}");
    assert_memory_equal(receive(f, other, "model_loading"), "HTTP/1.1 503 ", 13);
    close(other);
    make_ready(f);
    http_client_send(&f->loop, client, requests[0], strlen(requests[0]));
    receive(f, client, "{\"status\":\"ok\"}");
    assert_memory_equal(received, "HTTP/1.1 200 ", 13);
    http_client_send(&f->loop, client, requests[1], strlen(requests[1]));
    receive(f, client, "\"owned_by\":\"npud\"}]}");
    assert_non_null(strstr(received, "{\"object\":\"list\",\"data\":[{\"id\":\"test-model\",\"object\":\"model\","));
    close(client);
}

static void the_model_is_found_by_its_name(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    static const struct {
        const char *path, *status, *part;
    } cases[] = {
        {"/v1/models/test-model", "HTTP/1.1 200 ", "{\"id\":\"test-model\",\"object\":\"model\",\"created\":"},
        {"/v1/models/test%2Dmodel", "HTTP/1.1 200 ", "\"owned_by\":\"npud\"}"},
        {"/v1/models/test-mode", "HTTP/1.1 404 ",
         "{\"error\":{\"message\":\"there is no model test-mode here, but test-model\",\"type\":"
         "\"invalid_request_error\",\"param\":\"model\",\"code\":\"model_not_found\"}}"},
        {"/v1/models/%FF", "HTTP/1.1 404 ", "there is no model ? here"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[200];
        int client = http_client_connect(&f->loop, http_server_address(f->server, 0));
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", cases[i].path);
        http_client_send(&f->loop, client, request, strlen(request));
        receive(f, client, NULL);
        assert_memory_equal(received, cases[i].status, strlen(cases[i].status));
        if (strstr(received, cases[i].part) == NULL)
            fail_msg("no %s in %s", cases[i].part, received);
        close(client);
    }
}

static void embeddings_answer_when_all_inputs_have_theirs(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post_to(f, "/v1/embeddings", "{\"input\":[\"abc\",\"de\"],\"pooling\":\"last\",\"priority\":7}");
    wait_submitted(f, 2);
    for (int i = 1; i >= 0; i--) {
        const struct generation *generation = f->engine.submitted[i];
        assert_int_equal(generation->n_prompt, 3 - i);
        assert_true(generation->pooling == POOLING_LAST && generation->priority == 7);
        assert_true(generation->joins_previous == (i > 0) && generation->session_key == NULL);
        struct generation_event *event = calloc(1, sizeof *event);
        event->finished = true;
        event->reason = FINISH_STOP;
        event->embedding = calloc(2, sizeof *event->embedding);
        event->embedding[i] = 1;
        event->usage.prompt_tokens = 3 - i;
        deliver(f, i, event);
    }
    receive(f, client, "}}");
    assert_memory_equal(received, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(received, "\r\n\r\n{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,"
                                     "\"embedding\":[1,0]},{\"object\":\"embedding\",\"index\":1,\"embedding\":[0,1]}],"
                                     "\"model\":\"test-model\",\"usage\":{\"prompt_tokens\":5,\"total_tokens\":5}}"));
    assert_non_null(strstr(read_log(f), "embedded\n"));
    close(client);
    client = post_to(f, "/v1/embeddings", "{\"input\":\"abc\"}");
    wait_submitted(f, 3);
    assert_int_equal(f->engine.submitted[2]->pooling, POOLING_MEAN);
    finish(f, 2, FINISH_ERROR, "broken");
    receive(f, client, "broken");
    assert_memory_equal(received, "HTTP/1.1 500 ", 13);
    close(client);
}

static void a_whole_answer_collects_the_events(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"logprobs\":0}");
    wait_submitted(f, 1);
    say(f, 0, "he", 0);
    say(f, 0, "llo", 2);
    finish(f, 0, FINISH_STOP, "");
    receive(f, client, "\"recompute_ms\":null}}}");
    assert_memory_equal(received, "HTTP/1.1 200 OK\r\n", 17);
    assert_non_null(strstr(received, "\"object\":\"text_completion\""));
    assert_non_null(strstr(received, "\"model\":\"test-model\""));
    assert_non_null(strstr(received, "\"system_fingerprint\":\"npud-"));
    assert_non_null(strstr(received,
                           "{\"text\":\"hello\",\"index\":0,\"logprobs\":{\"tokens\":[\"h\",\"e\",\"l\",\"l\","
                           "\"o\"],\"token_logprobs\":[-0.5,"));
    assert_non_null(strstr(received, "\"text_offset\":[0,1,2,3,4]},\"finish_reason\":\"stop\"}]"));
    assert_non_null(strstr(received, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":5,\"total_tokens\":8,"
                                     "\"prompt_tokens_details\":{\"cached_tokens\":2}}"));
    assert_non_null(strstr(received, "\"prompt_n\":1,\"prompt_ms\":2.0,\"prompt_per_second\":500.0,"));
    const char *log = read_log(f);
    assert_memory_equal(log, "cmpl-", 5);
    assert_non_null(strstr(log, ": 3 prompt tokens, 2 cached, 5 generated, first token 4.5 ms, 500.0 tok/s, "));
    assert_non_null(strstr(log, ", stop\n"));
    close(client);
}

static void a_generation_gets_every_field(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client =
        post(f, "{\"prompt\":[5,6],\"max_tokens\":9,\"temperature\":0.5,\"top_p\":0,\"min_p\":0.25,\"top_k\":7,"
                "\"repeat_penalty\":1.5,\"presence_penalty\":1,\"frequency_penalty\":-1,\"seed\":10,\"n\":2,"
                "\"logprobs\":3,\"echo\":true,\"ignore_eos\":true,\"stop\":[\"x\",\"yz\"],"
                "\"logit_bias\":{\"7\":-100},\"prompt_cache_key\":\"k\"}");
    wait_submitted(f, 2);
    for (int i = 0; i < 2; i++) {
        const struct generation *g = f->engine.submitted[i];
        assert_int_equal(g->n_prompt, 2);
        assert_true(g->prompt[0] == 5 && g->prompt[1] == 6);
        assert_int_equal(g->max_tokens, 9);
        assert_true(g->sampling.temperature == 0.5f && g->sampling.top_p > 0 && g->sampling.top_p < 1e-6f);
        assert_true(g->sampling.min_p == 0.25f && g->sampling.top_k == 7 && g->sampling.repeat_penalty == 1.5f);
        assert_true(g->sampling.presence_penalty == 1 && g->sampling.frequency_penalty == -1);
        assert_int_equal(g->sampling.seed, 10 + i);
        assert_int_equal(g->sampling.n_bias, 1);
        assert_true(g->sampling.bias[0].token == 7 && g->sampling.bias[0].bias == -100);
        assert_int_equal(g->n_logprobs, 3);
        assert_true(g->echo && g->ignore_eos);
        assert_int_equal(g->n_stops, 2);
        assert_string_equal(g->stops[1], "yz");
        assert_int_equal(g->stop_lengths[1], 2);
        assert_string_equal(g->session_key, "k");
    }
    assert_string_not_equal(f->engine.submitted[0]->id, f->engine.submitted[1]->id);
    finish(f, 1, FINISH_LENGTH, "");
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "cached_n");
    close(client);
}

static void several_prompts_are_several_choices_in_order(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":[\"a\",\"b\"],\"n\":2}");
    wait_submitted(f, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(f->engine.submitted[i]->prompt[0], i < 2 ? 'a' : 'b');
    for (int i = 3; i >= 0; i--) {
        char text[2] = {(char)('0' + i), '\0'};
        say(f, i, text, 0);
        finish(f, i, FINISH_LENGTH, "");
    }
    receive(f, client, "cached_n");
    assert_non_null(strstr(received, "[{\"text\":\"0\",\"index\":0,"));
    assert_non_null(strstr(received, "{\"text\":\"3\",\"index\":3,"));
    /* Each prompt counts once, each choice's tokens count. */
    assert_non_null(strstr(received, "\"prompt_tokens\":6,\"completion_tokens\":20,"));
    close(client);
}

static void a_stream_sends_events_as_they_come(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    wait_submitted(f, 1);
    say(f, 0, "he", 0);
    receive(f, client, "\n\n\r\n");
    assert_non_null(strstr(received, "Content-Type: text/event-stream; charset=utf-8\r\n"));
    assert_non_null(strstr(received, "Cache-Control: no-cache\r\n"));
    assert_non_null(strstr(received, "\"choices\":[{\"text\":\"he\",\"index\":0,\"logprobs\":null,"
                                     "\"finish_reason\":null}],\"usage\":null}\n\n"));
    say(f, 0, "", 2); /* a stop string is being awaited: nothing to send */
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "0\r\n\r\n");
    const char *end = strstr(received, "{\"text\":\"\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\"}");
    assert_non_null(end);
    const char *usage = strstr(end, "\"choices\":[],\"usage\":{\"prompt_tokens\":3,");
    assert_non_null(usage);
    assert_non_null(strstr(usage, "\"timings\":{"));
    assert_non_null(strstr(usage, "data: [DONE]\n\n\r\n0\r\n\r\n"));
    close(client);
}

static void a_client_that_leaves_is_cancelled_at_once(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"n\":3}");
    wait_submitted(f, 3);
    finish(f, 1, FINISH_STOP, "");
    close(client);
    wait_cancelled(f, 2);
    assert_false(f->engine.cancelled[1]);
    say(f, 0, "late", 0); /* events under way still come */
    finish(f, 0, FINISH_CANCELLED, "");
    finish(f, 2, FINISH_CANCELLED, "");
    assert_non_null(strstr(read_log(f), ", client gone\n"));
    /* The same in the middle of a stream. */
    client = post(f, "{\"prompt\":\"abc\",\"stream\":true}");
    wait_submitted(f, 4);
    say(f, 3, "a", 0);
    receive(f, client, "\"text\":\"a\"");
    close(client);
    wait_cancelled(f, 3);
    finish(f, 3, FINISH_CANCELLED, "");
}

static void clients_that_leave_before_it_begins_leave_nothing(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    for (int i = 0; i < 50; i++) {
        close(post(f, "{\"prompt\":\"abc\"}"));
        for (int j = 0; j < i % 4; j++)
            turn(f);
    }
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (http_server_connections(f->server) > 0) {
        assert_true(uv_hrtime() < deadline);
        turn(f);
    }
    for (int i = 0; i < f->engine.n_submitted; i++) {
        assert_true(f->engine.cancelled[i]);
        finish(f, i, FINISH_CANCELLED, "");
    }
}

static void a_failing_device_is_a_500_or_an_error_frame(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"stream\":true}");
    wait_submitted(f, 1);
    finish(f, 0, FINISH_ERROR, "the device burns");
    receive(f, client, "\"code\":\"device_failed\"}}");
    assert_memory_equal(received, "HTTP/1.1 500 ", 13);
    assert_non_null(strstr(received, "\"message\":\"the device burns\""));
    close(client);

    client = post(f, "{\"prompt\":\"abc\",\"stream\":true,\"n\":2}");
    wait_submitted(f, 3);
    say(f, 1, "a", 0);
    finish(f, 2, FINISH_ERROR, "the device burns");
    receive(f, client, "0\r\n\r\n");
    assert_non_null(strstr(received, "data: {\"error\":{\"message\":\"the device burns\""));
    assert_null(strstr(received, "[DONE]"));
    assert_true(f->engine.cancelled[1]);
    finish(f, 1, FINISH_CANCELLED, "");
    close(client);
}

static void a_refusing_engine_has_its_status(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum generation_failure failure;
        const char *status, *code;
    } cases[] = {
        {FAILURE_TOO_LONG, "HTTP/1.1 400 ", "\"param\":\"prompt\",\"code\":\"context_length_exceeded\""},
        {FAILURE_QUEUE_FULL, "HTTP/1.1 429 ", "queue_full"},
        {FAILURE_WAIT, "HTTP/1.1 503 ", "wait_too_long"},
        {FAILURE_TIMEOUT, "HTTP/1.1 504 ", "timed_out"},
        {FAILURE_MEMORY, "HTTP/1.1 500 ", "out_of_memory"},
    };
    make_ready(f);
    for (int i = 0; i < 5; i++) {
        int client = post(f, "{\"prompt\":\"abc\",\"priority\":9,\"max_wait_ms\":100,\"timeout_ms\":200}");
        wait_submitted(f, i + 1);
        const struct generation *generation = f->engine.submitted[i];
        assert_true(generation->priority == 9 && generation->max_wait_ms == 100 && generation->timeout_ms == 200);
        struct generation_event *event = calloc(1, sizeof *event);
        event->finished = true;
        event->reason = FINISH_ERROR;
        event->failure = cases[i].failure;
        event->retry_after_ms = 1500;
        strcpy(event->message, "why");
        deliver(f, i, event);
        receive(f, client, cases[i].code);
        assert_memory_equal(received, cases[i].status, strlen(cases[i].status));
        assert_non_null(strstr(received, "Retry-After: 2\r\n"));
        close(client);
    }
}

static void a_stopping_engine_is_a_503(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 1);
    finish(f, 0, FINISH_CANCELLED, "");
    receive(f, client, "server_stopping");
    assert_memory_equal(received, "HTTP/1.1 503 ", 13);
    assert_non_null(strstr(received, "Retry-After: 1\r\n"));
    close(client);
}

static void refused(struct fixture *f, const char *body, const char *part)
{
    int client = post(f, body);
    receive(f, client, "\"code\":\"");
    assert_memory_equal(received, "HTTP/1.1 400 ", 13);
    if (strstr(received, part) == NULL)
        fail_msg("%s\nexpected %s\ngot %s", body, part, received);
    assert_int_equal(f->engine.n_submitted, 0);
    close(client);
}

static void prompts_that_do_not_fit_are_refused_with_both_numbers(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    enum {
        BODY_BYTES = 1100 * 1000
    };
    char *body = malloc(BODY_BYTES + 64);
    sprintf(body, "{\"prompt\":\"%065d\"}", 0);
    refused(f, body, "prompt is too long: it has 65 tokens, but the maximum context length is 64 tokens");
    sprintf(body, "{\"prompt\":[\"a\",\"%0*d\"]}", BODY_BYTES, 0);
    refused(f, body, "prompt[1] is too long: it has at least 1100000 tokens, but the maximum context length is 64");
    free(body);
    assert_non_null(strstr(received, "\"param\":\"prompt[1]\",\"code\":\"context_length_exceeded\""));
    refused(f, "{\"prompt\":[256]}", "prompt[0] must be a token id from 0 to 255, not 256");
    refused(f,
            "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\"],\"n\":102,\"max_tokens\":100,"
            "\"logprobs\":1,\"echo\":true}",
            "logprobs for up to 66300 tokens in one answer are too many");
    assert_non_null(strstr(read_log(f), "refused, 400: prompt is too long"));
}

static void an_empty_prompt_starts_at_the_beginning(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"\"}");
    wait_submitted(f, 1);
    assert_int_equal(f->engine.submitted[0]->n_prompt, 1);
    assert_int_equal(f->engine.submitted[0]->prompt[0], FAKE_BOS);
    finish(f, 0, FINISH_LENGTH, "");
    receive(f, client, "cached_n");
    close(client);
}

static void a_stream_that_nobody_reads_pauses_its_generations(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"stream\":true,\"n\":3}");
    wait_submitted(f, 3);
    finish(f, 1, FINISH_STOP, "");
    char *block = calloc(1, 10 * 1000 + 1);
    memset(block, 'x', 10 * 1000);
    uint32_t n = 0;
    for (; n < 5000 && f->engine.n_paused == 0; n++)
        say(f, 0, block, n * 10 * 1000);
    assert_int_equal(f->engine.n_paused, 2);
    say(f, 2, block, 0); /* events under way still come */
    assert_int_equal(f->engine.n_paused, 2);
    /* The client reads again. */
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_paused != 0) {
        ssize_t got = read(client, received, sizeof received);
        (void)got;
        turn(f);
        assert_true(uv_hrtime() < deadline);
    }
    /* And leaves while it is paused. */
    for (n = 0; n < 5000 && f->engine.n_paused == 0; n++)
        say(f, 0, block, n * 10 * 1000);
    assert_int_equal(f->engine.n_paused, 2);
    free(block);
    close(client);
    wait_cancelled(f, 2);
    finish(f, 0, FINISH_CANCELLED, "");
    finish(f, 2, FINISH_CANCELLED, "");
}

static int setup_impatient(void **state)
{
    return setup_with(state, 200);
}

static void a_stream_that_stays_unread_is_cancelled(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\",\"stream\":true}");
    wait_submitted(f, 1);
    char *block = calloc(1, 10 * 1000 + 1);
    memset(block, 'x', 10 * 1000);
    for (uint32_t n = 0; n < 5000 && f->engine.n_paused == 0; n++)
        say(f, 0, block, n * 10 * 1000);
    free(block);
    assert_int_equal(f->engine.n_paused, 1);
    /* A byte now and then is not reading: what counts is that the buffer becomes free. */
    uint64_t deadline = uv_hrtime() + 10ull * 1000 * 1000 * 1000;
    while (f->engine.n_cancelled == 0) {
        ssize_t got = read(client, received, 1);
        (void)got;
        turn(f);
        assert_true(uv_hrtime() < deadline);
    }
    finish(f, 0, FINISH_CANCELLED, "");
    assert_non_null(strstr(read_log(f), ", client did not read\n"));
    close(client);
}

static void finish_with_cache(struct fixture *f, int index, struct cache_report cache)
{
    struct generation_event *event = calloc(1, sizeof *event);
    event->finished = true;
    event->reason = FINISH_LENGTH;
    event->usage = (struct generation_usage){.prompt_tokens = 40, .cached_tokens = cache.n_cached, .cache = cache};
    deliver(f, index, event);
}

static void timings_tell_what_was_cached_and_why_not_more(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 1);
    finish_with_cache(f, 0,
                      (struct cache_report){.n_cached = 17,
                                            .source = CACHE_SOURCE_SHARED,
                                            .session_id = 0xa1,
                                            .source_id = 0xb2,
                                            .miss = CACHE_MISS_DIFFERS,
                                            .differs_at = 17});
    receive(f, client, "}}}");
    assert_non_null(strstr(received, "\"cached_n\":17,\"cache\":{\"cached\":17,\"source\":\"shared\","
                                     "\"session\":\"00000000000000a1\",\"from_session\":\"00000000000000b2\","
                                     "\"miss\":\"differs\",\"differs_at\":17,\"restored\":0,\"restore_ms\":null,"
                                     "\"recompute_ms\":null}"));
    close(client);

    client = post(f, "{\"prompt\":[\"abc\",\"de\"]}");
    wait_submitted(f, 3);
    finish_with_cache(f, 2,
                      (struct cache_report){.n_cached = 32,
                                            .source = CACHE_SOURCE_DISK,
                                            .session_id = 0xc3,
                                            .source_id = 0xc3,
                                            .differs_at = -1,
                                            .n_restored = 32,
                                            .restore_ms = 1.5,
                                            .recompute_ms = 99.5});
    finish_with_cache(f, 1, (struct cache_report){.miss = CACHE_MISS_FIRST_USE, .session_id = 0xd4, .differs_at = -1});
    receive(f, client, "]}}");
    assert_non_null(strstr(received, "\"cache\":{\"cached\":0,\"source\":\"none\",\"session\":\"00000000000000d4\","
                                     "\"from_session\":null,\"miss\":\"first_use\",\"differs_at\":null,"));
    assert_non_null(strstr(received, "{\"cached\":32,\"source\":\"disk\",\"session\":\"00000000000000c3\","
                                     "\"from_session\":\"00000000000000c3\",\"miss\":null,\"differs_at\":null,"
                                     "\"restored\":32,\"restore_ms\":1.5,\"recompute_ms\":99.5}]}}"));
    close(client);
}

static void a_prefill_reads_the_prompt_and_says_where_it_is(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post_to(f, "/v1/prefill",
                         "{\"prompt\":\"abc\",\"prompt_cache_key\":\"k\\u00e4\",\"priority\":2,\"max_tokens\":5}");
    wait_submitted(f, 1);
    const struct generation *g = f->engine.submitted[0];
    assert_memory_equal(g->id, "prefill-", 8);
    assert_true(g->n_prompt == 3 && g->max_tokens == 0 && !g->echo && g->priority == 2 && g->n_logprobs == -1);
    assert_string_equal(g->session_key, "k\xc3\xa4");
    finish_with_cache(f, 0, (struct cache_report){.session_id = 0xa1, .miss = CACHE_MISS_FIRST_USE, .differs_at = -1});
    receive(f, client, "}}}");
    assert_memory_equal(received, "HTTP/1.1 200 ", 13);
    assert_non_null(strstr(received, "\"object\":\"prefill\""));
    assert_non_null(
        strstr(received, "\"session\":\"00000000000000a1\",\"prompt_cache_key\":\"k\xc3\xa4\",\"usage\":{"));
    assert_non_null(strstr(received, "\"prompt_tokens\":40"));
    assert_non_null(strstr(read_log(f), ", prefilled\n"));
    close(client);
}

static void a_wrong_prefill_is_refused(void **state)
{
    struct fixture *f = *state;
    static const char *const cases[][2] = {
        {"{\"prompt\":\"abc\"}", "\"param\":\"prompt_cache_key\",\"code\":\"missing_required_parameter\""},
        {"{\"prompt\":\"abc\",\"prompt_cache_key\":\"\"}", "missing_required_parameter"},
        {"{\"prompt_cache_key\":\"k\"}", "\"param\":\"prompt\",\"code\":\"missing_required_parameter\""},
        {"{\"prompt\":[\"a\",\"b\"],\"prompt_cache_key\":\"k\"}", "prompt must be one prompt, not 2"},
        {"{\"prompt\":\"a\",\"prompt_cache_key\":\"k\",\"stream\":true}", "\"code\":\"unsupported_parameter\""},
        {"{\"prompt\":\"a\",\"prompt_cache_key\":\"k\",\"priority\":10}", "priority must be an integer from 0 to 9"},
    };
    make_ready(f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int client = post_to(f, "/v1/prefill", cases[i][0]);
        receive(f, client, "\"code\":\"");
        assert_memory_equal(received, "HTTP/1.1 400 ", 13);
        if (strstr(received, cases[i][1]) == NULL)
            fail_msg("%s\nexpected %s\ngot %s", cases[i][0], cases[i][1], received);
        close(client);
    }
    assert_int_equal(f->engine.n_submitted, 0);
}

static void closing_waits_for_the_last_generation(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int client = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 1);
    service_close(f->service, on_idle, f);
    assert_false(f->idle);
    finish(f, 0, FINISH_CANCELLED, "");
    assert_true(f->idle);
    close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(until_the_model_is_there_everything_is_503),
        TEST(embeddings_answer_when_all_inputs_have_theirs),
        TEST(the_model_is_found_by_its_name),
        TEST(a_whole_answer_collects_the_events),
        TEST(a_generation_gets_every_field),
        TEST(several_prompts_are_several_choices_in_order),
        TEST(a_stream_sends_events_as_they_come),
        TEST(a_client_that_leaves_is_cancelled_at_once),
        TEST(clients_that_leave_before_it_begins_leave_nothing),
        TEST(a_failing_device_is_a_500_or_an_error_frame),
        TEST(a_refusing_engine_has_its_status),
        TEST(a_stopping_engine_is_a_503),
        TEST(prompts_that_do_not_fit_are_refused_with_both_numbers),
        TEST(an_empty_prompt_starts_at_the_beginning),
        TEST(a_stream_that_nobody_reads_pauses_its_generations),
        cmocka_unit_test_setup_teardown(a_stream_that_stays_unread_is_cancelled, setup_impatient, teardown),
        TEST(timings_tell_what_was_cached_and_why_not_more),
        TEST(a_prefill_reads_the_prompt_and_says_where_it_is),
        TEST(a_wrong_prefill_is_refused),
        TEST(closing_waits_for_the_last_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
