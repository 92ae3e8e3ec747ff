/* The daemon's command line. One table gives names, ranges and help. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/log.h"

enum {
    OPTION_LIST_MAX = 32, /* times that an option may be repeated */
};

struct option_list {
    const char *values[OPTION_LIST_MAX];
    int n;
};

struct daemon_options {
    const char *model;
    const char *listen; /* ADDRESS:PORT or unix:PATH */
    const char *device; /* NULL: the first GPU or accelerator, else the CPU */
    int64_t context; /* tokens of one session; 0: the smaller of the model's and 4096 */
    int64_t parallel; /* generations that run at once */
    uint64_t kv_memory_bytes; /* 0: context times parallel */
    const char *cache_dir; /* NULL: paths_cache_dir */
    int self_check; /* 0 off, 1 quick, 2 full */
    const char *model_alias; /* NULL: the file's name */
    const char *chat_template; /* NULL: the model's own */
    int log_level; /* enum log_level */
    int64_t step_target_ms;
    int64_t queue; /* requests that may wait */
    const char *api_key_file; /* NULL: no keys are asked for */
    struct option_list cors_origins; /* each as http_cors_is_origin wants it */
    int64_t client_timeout_s; /* that a client may keep an answer waiting */
    int kv_type; /* 0 f16, 1 f32 */
    const char *state_dir; /* NULL: paths_state_dir */
    uint64_t state_max_bytes;
    int64_t checkpoint_interval_s; /* 0: only at eviction and at the end */
    bool help, version;
};

/* Texts point into arguments. False: message is one line that says what is wrong and what would be right. */
bool options_parse(struct daemon_options *options, int n_arguments, char *const *arguments, char *message,
                   size_t message_bytes);

/* The help text, malloc'ed; NULL when memory is out. */
char *options_help(void);

#endif
