/* GET /metrics: the text itself, and that it holds the numbers. */
#include "tests/unit/service_fixture.h"

#include <math.h>

#include "proto/prometheus.h"

static void families_samples_and_labels_are_written_as_the_format_wants(void **state)
{
    (void)state;
    struct prometheus writer;
    assert_true(prometheus_begin(&writer));
    prometheus_counter(&writer, "npud_a_total", "What a is.", 3);
    prometheus_family(&writer, "npud_b", PROMETHEUS_GAUGE, "What b is.");
    const struct prometheus_label labels[] = {{"x", "1 \"2\" \\3\n4"}, {"y", "\xc3\xa4"}, {"z", "\xff!"}};
    prometheus_sample(&writer, 0.25, labels, 3);
    prometheus_sample(&writer, -INFINITY, NULL, 0);
    prometheus_sample(&writer, NAN, labels + 2, 1);
    prometheus_sample(&writer, 1e15, NULL, 0);
    prometheus_family(&writer, "npud_c_seconds", PROMETHEUS_HISTOGRAM, "What c is.");
    const double bounds[] = {0.001, 2.5};
    const uint64_t counts[] = {1, 2, 3};
    prometheus_histogram(&writer, bounds, counts, 2, 12.5, NULL, 0);
    prometheus_histogram(&writer, bounds, counts, 2, 12.5, &(struct prometheus_label){"rows", "4"}, 1);
    size_t length;
    char *text = prometheus_end(&writer, &length);
    assert_string_equal(text, "# HELP npud_a_total What a is.\n"
                              "# TYPE npud_a_total counter\n"
                              "npud_a_total 3\n"
                              "# HELP npud_b What b is.\n"
                              "# TYPE npud_b gauge\n"
                              "npud_b{x=\"1 \\\"2\\\" \\\\3\\n4\",y=\"\xc3\xa4\",z=\"?!\"} 0.25\n"
                              "npud_b -Inf\n"
                              "npud_b{z=\"?!\"} NaN\n"
                              "npud_b 1000000000000000\n"
                              "# HELP npud_c_seconds What c is.\n"
                              "# TYPE npud_c_seconds histogram\n"
                              "npud_c_seconds_bucket{le=\"0.001\"} 1\n"
                              "npud_c_seconds_bucket{le=\"2.5\"} 3\n"
                              "npud_c_seconds_bucket{le=\"+Inf\"} 6\n"
                              "npud_c_seconds_sum 12.5\n"
                              "npud_c_seconds_count 6\n"
                              "npud_c_seconds_bucket{rows=\"4\",le=\"0.001\"} 1\n"
                              "npud_c_seconds_bucket{rows=\"4\",le=\"2.5\"} 3\n"
                              "npud_c_seconds_bucket{rows=\"4\",le=\"+Inf\"} 6\n"
                              "npud_c_seconds_sum{rows=\"4\"} 12.5\n"
                              "npud_c_seconds_count{rows=\"4\"} 6\n");
    assert_int_equal(length, strlen(text));
    free(text);
}

static void expect_sample(struct fixture *f, const char *sample)
{
    char line[256];
    snprintf(line, sizeof line, "\n%s\n", sample);
    int client = send_request(f, "GET", "/metrics");
    receive(f, client, "npud_state_read_bytes_total 0\n");
    if (strstr(received, line) == NULL)
        fail_msg("expected %s\ngot %s", sample, received);
    close(client);
}

static void the_numbers_are_those_of_the_engine(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    struct engine_metrics *metrics = &f->engine.metrics;
    metrics->running = 3;
    metrics->waiting = 4;
    metrics->waiting_requests = 2;
    metrics->paused = 1;
    metrics->prompt_tokens = 1000;
    metrics->cached_tokens = 900;
    metrics->output_tokens = 70;
    metrics->kv = (struct kv_pool_counters){.total = 64, .free = 30, .cached = 4, .used = 30, .shared = 5, .held = 7};
    metrics->sessions_idle = 2;
    metrics->evictions = 6;
    metrics->restores = 8;
    metrics->sessions_on_disk = 9;
    metrics->responses_on_disk = 11;
    histogram_add(&metrics->first_token, 0.003);
    histogram_add(&metrics->step[2], 0.0005);
    expect_sample(f, "npud_generations_running 3");
    assert_non_null(strstr(received, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    static const char *const samples[] = {
        "npud_generations_waiting 4",
        "npud_requests_waiting 2",
        "npud_generations_paused 1",
        "npud_prompt_tokens_total 1000",
        "npud_cached_tokens_total 900",
        "npud_generated_tokens_total 70",
        "npud_kv_blocks 64",
        "npud_kv_blocks_used 30",
        "npud_kv_blocks_shared 5",
        "npud_kv_blocks_free 30",
        "npud_sessions{state=\"resident\"} 2",
        "npud_sessions_on_disk 9",
        "npud_responses_on_disk 11",
        "npud_session_evictions_total 6",
        "npud_session_restores_total 8",
        "npud_time_to_first_token_seconds_bucket{le=\"0.002\"} 0",
        "npud_time_to_first_token_seconds_bucket{le=\"0.005\"} 1",
        "npud_time_to_first_token_seconds_count 1",
        "npud_step_seconds_count{rows=\"4\"} 1",
        "npud_launch_mode_switches_total 0",
        "npud_info{version=\"" NPUD_VERSION "\",model=\"test-model\",device=\"a \\\"device\\\"\","
        "platform=\"a platform\",driver_version=\"1.2\",numerics=\"0000000000001234\"} 1",
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        expect_sample(f, samples[i]);
}

static void requests_count_by_outcome(void **state)
{
    struct fixture *f = *state;
    make_ready(f);
    int clients[8], n = 0;
    clients[n++] = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 1);
    finish(f, 0, FINISH_STOP, "");
    clients[n++] = post(f, "{\"prompt\":\"abc\",\"n\":2}");
    wait_submitted(f, 3);
    finish(f, 1, FINISH_STOP, "");
    finish(f, 2, FINISH_LENGTH, "");
    clients[n++] = post_to(f, "/v1/prefill", "{\"prompt\":\"abc\",\"prompt_cache_key\":\"k\"}");
    wait_submitted(f, 4);
    finish(f, 3, FINISH_LENGTH, "");
    clients[n] = post(f, "{\"prompt\":5}");
    receive(f, clients[n++], "invalid_type");
    clients[n++] = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 5);
    finish(f, 4, FINISH_ERROR, "the device burns");
    int leaver = post(f, "{\"prompt\":\"abc\"}");
    wait_submitted(f, 6);
    close(leaver);
    wait_cancelled(f, 1);
    finish(f, 5, FINISH_CANCELLED, "");
    static const char *const samples[] = {
        "npud_requests_total{endpoint=\"completions\",outcome=\"stop\"} 1",
        "npud_requests_total{endpoint=\"completions\",outcome=\"length\"} 1",
        "npud_requests_total{endpoint=\"completions\",outcome=\"refused\"} 1",
        "npud_requests_total{endpoint=\"completions\",outcome=\"failed\"} 1",
        "npud_requests_total{endpoint=\"completions\",outcome=\"client_gone\"} 1",
        "npud_requests_total{endpoint=\"completions\",outcome=\"queue_full\"} 0",
        "npud_requests_total{endpoint=\"prefill\",outcome=\"prefilled\"} 1",
        "npud_http_responses_total{code=\"400\"} 1",
        "npud_http_responses_total{code=\"500\"} 1",
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        expect_sample(f, samples[i]);
    for (int i = 0; i < n; i++)
        close(clients[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_samples_and_labels_are_written_as_the_format_wants),
        TEST(the_numbers_are_those_of_the_engine),
        TEST(requests_count_by_outcome),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
