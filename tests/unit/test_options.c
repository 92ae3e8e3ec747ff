#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/options.h"
#include "daemon/paths.h"

enum {
    MAX_ARGUMENTS = 48
};

/* Splits text at spaces. */
static bool parse(struct daemon_options *options, const char *text, char *message, size_t message_bytes)
{
    static char copy[1024];
    char *arguments[MAX_ARGUMENTS] = {"npud"};
    int n = 1;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok(copy, " "); word != NULL && n < MAX_ARGUMENTS; word = strtok(NULL, " "))
        arguments[n++] = word;
    return options_parse(options, n, arguments, message, message_bytes);
}

static void taken(struct daemon_options *options, const char *text)
{
    char message[256];
    if (!parse(options, text, message, sizeof message))
        fail_msg("%s: %s", text, message);
}

static void refused(const char *text, const char *part)
{
    struct daemon_options options;
    char message[256];
    assert_false(parse(&options, text, message, sizeof message));
    if (strstr(message, part) == NULL || strchr(message, '\n') != NULL)
        fail_msg("%s\nexpected: %s\ngot: %s", text, part, message);
}

static void defaults_hold(void **state)
{
    (void)state;
    struct daemon_options o;
    taken(&o, "--model m.gguf");
    assert_string_equal(o.model, "m.gguf");
    assert_string_equal(o.listen, "127.0.0.1:8080");
    assert_null(o.device);
    assert_null(o.api_key_file);
    assert_int_equal(o.cors_origins.n, 0);
    assert_null(o.cache_dir);
    assert_null(o.model_alias);
    assert_int_equal(o.context, 0);
    assert_int_equal(o.parallel, 8);
    assert_int_equal(o.kv_memory_bytes, 0);
    assert_int_equal(o.self_check, 1);
    assert_int_equal(o.log_level, LOG_LEVEL_INFO);
    assert_int_equal(o.step_target_ms, 50);
    assert_int_equal(o.queue, 64);
    assert_int_equal(o.client_timeout_s, 30);
    assert_int_equal(o.kv_type, 0);
    assert_null(o.state_dir);
    assert_int_equal(o.state_max_bytes, 2ull << 30);
    assert_int_equal(o.checkpoint_interval_s, 60);
    assert_false(o.help || o.version);
}

static void every_option_is_read_in_both_forms(void **state)
{
    (void)state;
    static const char *const forms[] = {
        "--model m --listen [::1]:0 --api-key-file /k --cors-origin http://a --cors-origin * --device 1 --context 512 "
        "--parallel 3 --kv-memory 2G --cache-dir /c --self-check "
        "full --model-alias a --log-level debug --step-target-ms 20 --queue 1 --client-timeout 5 --kv-type f32 "
        "--state-dir /s --state-max 5M --checkpoint-interval 0",
        "--model=m --listen=[::1]:0 --api-key-file=/k --cors-origin=http://a --cors-origin=* --device=1 --context=512 "
        "--parallel=3 --kv-memory=2g --cache-dir=/c "
        "--self-check=full --model-alias=a --log-level=debug --step-target-ms=20 --queue=1 --client-timeout=5 "
        "--kv-type=f32 --state-dir=/s --state-max=5m --checkpoint-interval=0"};
    for (int i = 0; i < 2; i++) {
        struct daemon_options o;
        taken(&o, forms[i]);
        assert_string_equal(o.model, "m");
        assert_string_equal(o.listen, "[::1]:0");
        assert_string_equal(o.api_key_file, "/k");
        assert_int_equal(o.cors_origins.n, 2);
        assert_string_equal(o.cors_origins.values[0], "http://a");
        assert_string_equal(o.cors_origins.values[1], "*");
        assert_string_equal(o.device, "1");
        assert_int_equal(o.context, 512);
        assert_int_equal(o.parallel, 3);
        assert_int_equal(o.kv_memory_bytes, 2ull << 30);
        assert_string_equal(o.cache_dir, "/c");
        assert_int_equal(o.self_check, 2);
        assert_string_equal(o.model_alias, "a");
        assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
        assert_int_equal(o.step_target_ms, 20);
        assert_int_equal(o.queue, 1);
        assert_int_equal(o.client_timeout_s, 5);
        assert_int_equal(o.kv_type, 1);
        assert_string_equal(o.state_dir, "/s");
        assert_int_equal(o.state_max_bytes, 5 << 20);
        assert_int_equal(o.checkpoint_interval_s, 0);
    }
}

static void sizes_have_suffixes(void **state)
{
    (void)state;
    struct daemon_options o;
    taken(&o, "--model m --kv-memory 1048576");
    assert_int_equal(o.kv_memory_bytes, 1 << 20);
    taken(&o, "--model m --kv-memory 2048K");
    assert_int_equal(o.kv_memory_bytes, 2 << 20);
    taken(&o, "--model m --kv-memory 1T");
    assert_int_equal(o.kv_memory_bytes, 1ull << 40);
    static const char *const wrong[] = {"0", "1048575", "1X", "1MB", "M", "-1M", "1.5G", "99999999T", "1 M"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "--model m --kv-memory %s", wrong[i]);
        struct daemon_options options;
        char message[256];
        assert_false(parse(&options, text, message, sizeof message));
    }
}

static void wrong_options_are_named(void **state)
{
    (void)state;
    refused("", "--model FILE is required");
    refused("--parallel 2", "--model FILE is required");
    refused("--model", "--model needs a value: FILE");
    refused("--model=", "--model must not be empty");
    refused("--modell m", "unknown option '--modell'");
    refused("m.gguf", "unknown argument 'm.gguf'");
    refused("-h", "unknown option '-h'");
    refused("--model m --context 31", "--context must be a number from 32 to 2147483647, not '31'");
    refused("--model m --context 2147483648", "not '2147483648'");
    refused("--model m --context 99999999999999999999", "must be a number");
    refused("--model m --context 4k", "not '4k'");
    refused("--model m --context -5", "not '-5'");
    refused("--model m --parallel 0", "from 1 to 256");
    refused("--model m --parallel 257", "from 1 to 256");
    refused("--model m --kv-memory 5X", "512M or 2G");
    refused("--model m --self-check on", "one of off|quick|full, not 'on'");
    refused("--model m --self-check quic", "one of off|quick|full");
    refused("--model m --log-level loud", "one of error|warning|info|debug");
    refused("--model m --step-target-ms 0", "from 1 to 10000");
    refused("--model m --queue 0", "--queue must be a number from 1 to 65536, not '0'");
    refused("--model m --queue 65537", "from 1 to 65536");
    refused("--model m --client-timeout 0", "--client-timeout must be a number from 1 to 3600, not '0'");
    refused("--model m --client-timeout 1.5", "not '1.5'");
    refused("--model m --kv-type q8", "--kv-type must be one of f16|f32, not 'q8'");
    refused("--model m --state-dir=", "--state-dir must not be empty");
    refused("--model m --state-max 1M1", "--state-max must be at least 1048576 bytes");
    refused("--model m --checkpoint-interval 86401", "--checkpoint-interval must be a number from 0 to 86400");
    refused("--help=yes", "--help takes no value");
}

static void help_names_every_option_and_needs_no_model(void **state)
{
    (void)state;
    struct daemon_options o;
    taken(&o, "--help");
    assert_true(o.help);
    taken(&o, "--version");
    assert_true(o.version);
    char *help = options_help();
    assert_non_null(help);
    static const char *const names[] = {"--model",
                                        "--listen",
                                        "--device",
                                        "--context",
                                        "--parallel",
                                        "--kv-memory",
                                        "--cache-dir",
                                        "--self-check",
                                        "--log-level",
                                        "--step-target-ms",
                                        "--model-alias",
                                        "--help",
                                        "--version",
                                        "--queue",
                                        "--kv-type",
                                        "--client-timeout",
                                        "--state-dir",
                                        "--state-max",
                                        "--checkpoint-interval"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_non_null(strstr(help, names[i]));
    free(help);
}

static void expect_cache_dir(const char *expected)
{
    char *path = paths_cache_dir();
    if (expected == NULL) {
        assert_null(path);
    } else {
        assert_non_null(path);
        assert_string_equal(path, expected);
    }
    free(path);
}

static void the_cache_folder_follows_the_environment(void **state)
{
    (void)state;
    setenv("HOME", "/home/u", 1);
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("CACHE_DIRECTORY", "/var/cache/npud:/other", 1);
    expect_cache_dir("/var/cache/npud");
    unsetenv("CACHE_DIRECTORY");
    expect_cache_dir("/x/npud");
    setenv("XDG_CACHE_HOME", "relative", 1); /* the specification says to ignore it */
    expect_cache_dir("/home/u/.cache/npud");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/", 1);
    expect_cache_dir(NULL);
    unsetenv("HOME");
    expect_cache_dir(NULL);
}

static void expect_state_dir(const char *expected)
{
    char *path = paths_state_dir();
    assert_true((path == NULL) == (expected == NULL));
    if (path != NULL)
        assert_string_equal(path, expected);
    free(path);
}

static void the_state_folder_is_the_service_manager_s(void **state)
{
    (void)state;
    unsetenv("STATE_DIRECTORY");
    expect_state_dir(NULL);
    setenv("STATE_DIRECTORY", "/var/lib/npud:/other", 1);
    expect_state_dir("/var/lib/npud");
    setenv("STATE_DIRECTORY", "relative", 1);
    expect_state_dir(NULL);
    unsetenv("STATE_DIRECTORY");
}

static void log_lines_have_priorities_and_no_control_characters(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct log log = {.level = LOG_LEVEL_INFO, .descriptor = ends[1], .with_priorities = true};
    log_error(&log, "a %d\nb\x1b[31m", 5);
    log_debug(&log, "not written");
    log.with_priorities = false;
    log_warning(&log, "c");
    log_info(&log, "%s", "");
    char *long_text = calloc(1, 5000);
    memset(long_text, 'x', 4999);
    log_info(&log, "%s", long_text);
    free(long_text);
    close(ends[1]);
    char text[4096];
    ssize_t n = read(ends[0], text, sizeof text - 1);
    assert_true(n > 0);
    text[n] = '\0';
    close(ends[0]);
    const char *start = "<3>a 5?b?[31m\nwarning: c\n\n";
    assert_memory_equal(text, start, strlen(start));
    assert_true(n > 1000 && n < 1024 + (ssize_t)strlen(start));
    assert_int_equal(text[n - 1], '\n');
}

static void origins_are_checked_and_counted(void **state)
{
    (void)state;
    refused("--model m --cors-origin example.org",
            "--cors-origin must be * or like https://example.org or http://localhost:3000, not 'example.org'");
    refused("--model m --cors-origin https://example.org/", "not 'https://example.org/'");
    char text[] = "--model=m", message[256];
    char *arguments[OPTION_LIST_MAX + 4] = {"npud", text};
    for (int i = 0; i <= OPTION_LIST_MAX; i++)
        arguments[2 + i] = "--cors-origin=http://a";
    struct daemon_options options;
    assert_true(options_parse(&options, OPTION_LIST_MAX + 2, arguments, message, sizeof message));
    assert_int_equal(options.cors_origins.n, OPTION_LIST_MAX);
    assert_false(options_parse(&options, OPTION_LIST_MAX + 3, arguments, message, sizeof message));
    assert_string_equal(message, "--cors-origin may be given at most 32 times");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_hold),
        cmocka_unit_test(every_option_is_read_in_both_forms),
        cmocka_unit_test(sizes_have_suffixes),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(help_names_every_option_and_needs_no_model),
        cmocka_unit_test(the_cache_folder_follows_the_environment),
        cmocka_unit_test(the_state_folder_is_the_service_manager_s),
        cmocka_unit_test(log_lines_have_priorities_and_no_control_characters),
        cmocka_unit_test(origins_are_checked_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
