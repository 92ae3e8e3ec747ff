/* npud: listens at once, loads the model on a worker thread, serves until SIGTERM or SIGINT, then lets running answers
 * finish. Everything here runs on the loop's thread but load_model. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/chat_format.h"
#include "daemon/engine.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/options.h"
#include "daemon/paths.h"
#include "daemon/service.h"
#include "daemon/tokenizer.h"
#include "npu/executor.h"
#include "npu/loader.h"
#include "npu/model.h"
#include "proto/api_keys.h"
#include "proto/http_cors.h"
#include "proto/http_server.h"

enum {
    STOP_GRACE_MS = 30 * 1000, /* for running answers */
    STOP_DEVICE_MS = 10 * 1000, /* then for the engine to end its last step */
    WANTED_DESCRIPTORS = 4096,
    OWN_DESCRIPTORS = 48, /* the model, the driver's, the loop's, the state folder's */
    N_STOP_SIGNALS = 2,
};

struct daemon {
    struct daemon_options options;
    struct log log;
    uv_loop_t loop;
    uv_signal_t stop_signals[N_STOP_SIGNALS], reload_signal;
    uv_timer_t watchdog, device_deadline;
    struct http_server *server;
    struct service *service;
    struct api_keys *api_keys; /* or NULL */
    char *model_name, *cache_dir, *state_dir;

    /* The worker's while loading. */
    uv_work_t load;
    bool loading;
    uint64_t started_ns;
    enum npu_status load_status;
    struct npu_error load_error;
    struct npu_loaded loaded;
    struct tokenizer *tokenizer;
    struct chat_format *chat_format;

    struct engine *engine;
    bool stopping;
    int n_signals;
    uint64_t watchdog_us;
    bool watchdog_warned;
    int status; /* of the process */
};

/* ---- stopping: the HTTP server, then the service, then the engine, then the loop's own handles ---- */

static void close_handles(void *context)
{
    struct daemon *daemon = context;
    for (int i = 0; i < N_STOP_SIGNALS; i++)
        uv_close((uv_handle_t *)&daemon->stop_signals[i], NULL);
    uv_close((uv_handle_t *)&daemon->reload_signal, NULL);
    uv_close((uv_handle_t *)&daemon->watchdog, NULL);
    uv_close((uv_handle_t *)&daemon->device_deadline, NULL);
}

static void on_service_idle(void *context)
{
    struct daemon *daemon = context;
    uv_timer_stop(&daemon->device_deadline); /* closing the engine saves sessions, which takes what it takes */
    if (daemon->engine != NULL)
        engine_close(daemon->engine, close_handles, daemon);
    else
        close_handles(daemon);
}

static void on_device_deadline(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    log_error(&daemon->log, "the device did not end its work in %d s", STOP_DEVICE_MS / 1000);
    _exit(EXIT_FAILURE);
}

static void on_http_stopped(void *context)
{
    struct daemon *daemon = context;
    if (daemon->loading) {
        /* Loading cannot be interrupted, and nobody waits for it any more. */
        log_info(&daemon->log, "stopped while loading");
        _exit(daemon->status);
    }
    if (daemon->service == NULL) {
        close_handles(daemon);
        return;
    }
    uv_timer_start(&daemon->device_deadline, on_device_deadline, STOP_DEVICE_MS, 0);
    service_close(daemon->service, on_service_idle, daemon);
}

static void stop(struct daemon *daemon, uint64_t grace_ms)
{
    if (!daemon->stopping)
        notify_stopping();
    daemon->stopping = true;
    http_server_stop(daemon->server, grace_ms, on_http_stopped, daemon);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    daemon->n_signals++;
    if (daemon->n_signals == 1) {
        log_info(&daemon->log, "%s: stopping; running answers may take %d s more", strsignal(number),
                 STOP_GRACE_MS / 1000);
        stop(daemon, STOP_GRACE_MS);
    } else if (daemon->n_signals == 2) {
        log_info(&daemon->log, "%s again: ending running answers", strsignal(number));
        stop(daemon, 0);
    } else {
        _exit(EXIT_FAILURE);
    }
}

/* ---- API keys ---- */

/* False: they could not be read, and those from before hold. */
static bool read_api_keys(struct daemon *daemon)
{
    const char *path = daemon->options.api_key_file;
    char message[512];
    bool open_to_all = false;
    struct api_keys *keys = api_keys_read(path, &open_to_all, message, sizeof message);
    if (keys == NULL) {
        log_error(&daemon->log, "%s", message);
        return false;
    }
    if (open_to_all)
        log_warning(&daemon->log, "every user of this machine may read %.200s", path);
    http_server_require_keys(daemon->server, keys, "/health");
    api_keys_destroy(daemon->api_keys);
    daemon->api_keys = keys;
    return true;
}

static void on_reload(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    if (daemon->options.api_key_file == NULL)
        log_info(&daemon->log, "%s: there is nothing to read again without --api-key-file", strsignal(number));
    else if (read_api_keys(daemon))
        log_info(&daemon->log, "%s: read %d API keys", strsignal(number), api_keys_count(daemon->api_keys));
    else
        log_warning(&daemon->log, "%s: the API keys from before hold", strsignal(number));
}

/* ---- the watchdog: the loop is alive if it comes here, the engine if it is idle or moves ---- */

static void on_watchdog(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    struct engine_stats stats;
    engine_stats_get(daemon->engine, &stats);
    uint64_t now_us = uv_hrtime() / 1000, beat_us = engine_heartbeat_us(daemon->engine);
    if (stats.running + stats.waiting == 0 || beat_us + daemon->watchdog_us / 2 > now_us) {
        notify_alive();
        daemon->watchdog_warned = false;
    } else if (!daemon->watchdog_warned) {
        daemon->watchdog_warned = true;
        log_error(&daemon->log, "the engine has not moved for %llu ms", (unsigned long long)(now_us - beat_us) / 1000);
    }
}

static void start_watchdog(struct daemon *daemon)
{
    daemon->watchdog_us = notify_watchdog_us();
    if (daemon->watchdog_us == 0)
        return;
    uint64_t period_ms = daemon->watchdog_us / 3000;
    uv_timer_start(&daemon->watchdog, on_watchdog, period_ms, period_ms > 0 ? period_ms : 1);
}

/* ---- loading ---- */

static void load_model(uv_work_t *work)
{
    struct daemon *daemon = work->data;
    const struct daemon_options *options = &daemon->options;
    struct npu_load_options load = {
        .model_path = options->model,
        .device = options->device,
        .context = (int32_t)options->context,
        .parallel = (int)options->parallel,
        .kv_memory_bytes = options->kv_memory_bytes,
        .kv_f32 = options->kv_type == 1,
        .cache_dir = options->cache_dir != NULL ? options->cache_dir : daemon->cache_dir,
        .self_check = options->self_check,
    };
    daemon->load_status = npu_load(&daemon->loaded, &load, &daemon->load_error);
    if (daemon->load_status != NPU_OK)
        return;
    daemon->load_status = tokenizer_create(&daemon->tokenizer, daemon->loaded.file, &daemon->load_error);
    if (daemon->load_status == NPU_OK)
        daemon->load_status = chat_format_create(&daemon->chat_format, daemon->loaded.file, options->chat_template,
                                                 daemon->tokenizer, &daemon->load_error);
    if (daemon->load_status != NPU_OK)
        npu_unload(&daemon->loaded);
}

static bool start_engine(struct daemon *daemon)
{
    const struct executor *executor = daemon->loaded.executor;
    const struct daemon_options *wanted = &daemon->options;
    struct engine_options options = {
        .context = daemon->loaded.context,
        .parallel = (int)wanted->parallel,
        .step_target_ms = (int)wanted->step_target_ms,
        .queue = (int)wanted->queue,
        .state_dir = wanted->state_dir != NULL ? wanted->state_dir : daemon->state_dir,
        .state_max_bytes = wanted->state_max_bytes,
        .checkpoint_interval_s = (int)wanted->checkpoint_interval_s,
        .log = &daemon->log,
    };
    daemon->load_status = engine_create(&daemon->engine, &options, daemon->loaded.executor, daemon->tokenizer,
                                        &daemon->loop, &daemon->load_error);
    if (daemon->load_status != NPU_OK)
        return false;
    bool has_state_dir = options.state_dir != NULL;
    int64_t kv_tokens = (int64_t)executor->n_blocks * KV_BLOCK_TOKENS;
    struct service_model model = {
        .engine = daemon->engine,
        .tokenizer = daemon->tokenizer,
        .chat_format = daemon->chat_format,
        .context = daemon->loaded.context,
        .max_prompt_tokens = kv_tokens < daemon->loaded.context ? (int32_t)kv_tokens : daemon->loaded.context,
        .pooling = daemon->loaded.model->pooling,
        .has_state_dir = has_state_dir,
        .executor = executor,
        .device = daemon->loaded.device,
        .platform = daemon->loaded.platform,
        .driver = daemon->loaded.driver,
    };
    if (service_set_model(daemon->service, &model))
        return true;
    npu_error_set(&daemon->load_error, NPU_ERROR_MEMORY, "not enough memory to start");
    return false;
}

/* The model is mapped: when the file is cut short or its disk fails, reading it raises SIGBUS. Set
 * again once the driver is loaded, which may bring a handler of its own. */
static void on_bus_error(int number)
{
    static const char line[] =
        "npud: the model file was cut short, or cannot be read any more, while in use; to replace "
        "it, write another file and rename that\n";
    (void)number;
    ssize_t written = write(STDERR_FILENO, line, sizeof line - 1);
    (void)written;
    _exit(EXIT_FAILURE);
}

static void on_loaded(uv_work_t *work, int work_status)
{
    struct daemon *daemon = work->data;
    (void)work_status; /* never cancelled */
    daemon->loading = false;
    signal(SIGBUS, on_bus_error);
    if (daemon->load_status != NPU_OK || !start_engine(daemon)) {
        log_error(&daemon->log, "%s", daemon->load_error.message);
        daemon->status = EXIT_FAILURE;
        stop(daemon, 0);
        return;
    }
    char line[900];
    snprintf(line, sizeof line, "serving %.100s on %s: %s; context %d, parallel %d, ready after %.2f s",
             daemon->model_name, http_server_address(daemon->server, 0), daemon->loaded.description,
             (int)daemon->loaded.context, (int)daemon->options.parallel,
             (double)(uv_hrtime() - daemon->started_ns) / 1e9);
    log_info(&daemon->log, "%s", line);
    if (chat_format_problem(daemon->chat_format) != NULL)
        log_warning(&daemon->log, "no chats: %s", chat_format_problem(daemon->chat_format));
    notify_ready(line);
    start_watchdog(daemon);
}

/* ---- start and end ---- */

static void on_response(const char *method, const char *path, int status, void *context)
{
    struct daemon *daemon = context;
    log_debug(&daemon->log, "%s %.200s: %d", method, path, status);
    if (daemon->service != NULL)
        service_count_response(daemon->service, status);
}

/* The file's name without its folder and ".gguf". */
static char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL && slash[1] != '\0' ? slash + 1 : path;
    size_t length = strlen(name);
    if (length > 5 && strcasecmp(name + length - 5, ".gguf") == 0)
        length -= 5;
    return strndup(name, length);
}

/* A connection needs a descriptor; the usual soft limit is 1024. Where even the hard limit is low, fewer connections are
 * taken, so that drivers and saved sessions can still open their files. */
static void fit_descriptor_limit(struct daemon *daemon, struct http_server_options *http)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < WANTED_DESCRIPTORS) {
        limit.rlim_cur = limit.rlim_max < WANTED_DESCRIPTORS ? limit.rlim_max : WANTED_DESCRIPTORS;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0 && getrlimit(RLIMIT_NOFILE, &limit) != 0)
            return;
    }
    rlim_t wanted = (rlim_t)http->connections + OWN_DESCRIPTORS;
    if (limit.rlim_cur >= wanted)
        return;
    http->connections = limit.rlim_cur > OWN_DESCRIPTORS + 1 ? (int)(limit.rlim_cur - OWN_DESCRIPTORS) : 1;
    log_warning(&daemon->log, "%d connections at most, because only %llu files may be open (LimitNOFILE, ulimit -n)",
                http->connections, (unsigned long long)limit.rlim_cur);
}

static void init_handles(struct daemon *daemon)
{
    static const int numbers[N_STOP_SIGNALS] = {SIGTERM, SIGINT};
    for (int i = 0; i < N_STOP_SIGNALS; i++) {
        uv_signal_init(&daemon->loop, &daemon->stop_signals[i]);
        daemon->stop_signals[i].data = daemon;
        uv_signal_start(&daemon->stop_signals[i], on_signal, numbers[i]);
    }
    uv_signal_init(&daemon->loop, &daemon->reload_signal);
    daemon->reload_signal.data = daemon;
    uv_signal_start(&daemon->reload_signal, on_reload, SIGHUP);
    uv_timer_init(&daemon->loop, &daemon->watchdog);
    uv_timer_init(&daemon->loop, &daemon->device_deadline);
    daemon->watchdog.data = daemon->device_deadline.data = daemon;
}

static bool start(struct daemon *daemon)
{
    struct http_server_options http;
    char message[512];
    http_server_options_init(&http);
    fit_descriptor_limit(daemon, &http);
    http.write_timeout_ms = (uint64_t)daemon->options.client_timeout_s * 1000;
    http.on_response = on_response;
    http.context = daemon;
    daemon->model_name =
        daemon->options.model_alias != NULL ? strdup(daemon->options.model_alias) : name_of_file(daemon->options.model);
    daemon->cache_dir = paths_cache_dir();
    daemon->state_dir = paths_state_dir();
    daemon->server = http_server_create(&daemon->loop, &http);
    if (daemon->server != NULL && daemon->model_name != NULL)
        daemon->service = service_create(&daemon->loop, daemon->server, daemon->model_name, &daemon->log);
    if (daemon->service == NULL) {
        log_error(&daemon->log, "not enough memory to start");
        return false;
    }
    http_server_allow_origins(daemon->server, daemon->options.cors_origins.values, daemon->options.cors_origins.n);
    if (daemon->options.api_key_file != NULL && !read_api_keys(daemon))
        return false;
    if (!http_server_listen(daemon->server, daemon->options.listen, message, sizeof message)) {
        log_error(&daemon->log, "%s", message);
        return false;
    }
    daemon->load.data = daemon;
    if (uv_queue_work(&daemon->loop, &daemon->load, load_model, on_loaded) != 0) {
        log_error(&daemon->log, "no thread to load the model");
        return false;
    }
    daemon->loading = true;
    notify_status("Loading the model");
    log_debug(&daemon->log, "listening on %s, loading %s", http_server_address(daemon->server, 0),
              daemon->options.model);
    return true;
}

/* A file of ours must not take the place of a standard stream that was closed at start. */
static bool open_standard_streams(void)
{
    int descriptor = open("/dev/null", O_RDWR);
    while (descriptor >= 0 && descriptor <= STDERR_FILENO)
        descriptor = dup(descriptor);
    return descriptor >= 0 && close(descriptor) == 0;
}

static int run(struct daemon *daemon)
{
    daemon->started_ns = uv_hrtime();
    log_init(&daemon->log, (enum log_level)daemon->options.log_level);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error of write */
    signal(SIGBUS, on_bus_error);
    if (uv_loop_init(&daemon->loop) != 0) {
        log_error(&daemon->log, "the system has no event loop left");
        return EXIT_FAILURE;
    }
    init_handles(daemon);
    if (!start(daemon)) {
        daemon->status = EXIT_FAILURE;
        if (daemon->server != NULL)
            stop(daemon, 0);
        else
            close_handles(daemon);
    }
    uv_run(&daemon->loop, UV_RUN_DEFAULT);
    service_destroy(daemon->service);
    http_server_destroy(daemon->server);
    api_keys_destroy(daemon->api_keys);
    chat_format_destroy(daemon->chat_format);
    tokenizer_destroy(daemon->tokenizer);
    npu_unload(&daemon->loaded);
    uv_loop_close(&daemon->loop);
    free(daemon->model_name);
    free(daemon->cache_dir);
    free(daemon->state_dir);
    if (daemon->status == EXIT_SUCCESS)
        log_info(&daemon->log, "stopped");
    return daemon->status;
}

static int print_help(void)
{
    char *help = options_help();
    if (help == NULL)
        return EXIT_FAILURE;
    fputs(help, stdout);
    free(help);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    static struct daemon daemon;
    char message[512];
    if (!open_standard_streams())
        return EXIT_FAILURE;
    if (!options_parse(&daemon.options, argc, argv, message, sizeof message) ||
        !http_server_check_address(daemon.options.listen, message, sizeof message)) {
        fprintf(stderr, "npud: %s\n", message);
        return 2;
    }
    if (daemon.options.help)
        return print_help();
    if (daemon.options.version) {
        puts("npud " NPUD_VERSION);
        return EXIT_SUCCESS;
    }
    return run(&daemon);
}
