#include "daemon/npuctl/npuctl_bench.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/npuctl/bench_points.h"
#include "daemon/npuctl/bench_report.h"
#include "npu/loader.h"
#include "npu/model.h"

enum {
    MAX_POSITION = 1 << 20
};

static const char usage[] =
    "usage: npuctl bench --model FILE [options]\n"
    "Times steps of prompts and generations: tokens a second, bytes of weights and K/V read, multiply-adds.\n"
    "  --model FILE       GGUF model (with --roof alone it may be left out)\n"
    "  --device SEL       index, or text in the platform's or device's name\n"
    "  --rows LIST        rows of a prompt in one step (default 1,2,4,8,16,32,64,128,256)\n"
    "  --sessions LIST    generations that share a step (default 1,2,4,8,16)\n"
    "  --positions LIST   tokens that stand before them (default 0,500,1000)\n"
    "  --roof             measure what the driver can read and multiply at best\n"
    "  --profile          time the ops of steps, one a launch and all of a kind in one launch, instead of whole steps\n"
    "  --json             print one JSON object\n";

struct options {
    const char *model, *device;
    struct bench_list rows, sessions, positions;
    bool roof, profile, json;
};

static bool wrong_option(const char *message, const char *value)
{
    fprintf(stderr, "npuctl bench: %s%s%s (see npuctl bench --help)\n", message, value ? ": " : "", value ? value : "");
    return false;
}

/* "1,2,3" */
static bool parse_list(const char *text, int least, int most, struct bench_list *list)
{
    list->n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long value = strtol(at, &end, 10);
        if (end == at || errno != 0 || value < least || value > most || list->n == BENCH_MAX_LIST)
            return false;
        list->values[list->n++] = (int)value;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        at = end;
    }
}

/* False: a line on stderr, or help on stdout with *help set. */
static bool parse_options(struct options *options, int argc, char **argv, bool *help)
{
    enum {
        MODEL = 256,
        DEVICE,
        ROWS,
        SESSIONS,
        POSITIONS,
        ROOF,
        PROFILE,
        JSON,
        HELP
    };
    static const struct option known[] = {
        {"model", required_argument, NULL, MODEL},
        {"device", required_argument, NULL, DEVICE},
        {"rows", required_argument, NULL, ROWS},
        {"sessions", required_argument, NULL, SESSIONS},
        {"positions", required_argument, NULL, POSITIONS},
        {"roof", no_argument, NULL, ROOF},
        {"profile", no_argument, NULL, PROFILE},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    *options = (struct options){.rows = {{1, 2, 4, 8, 16, 32, 64, 128, 256}, 9},
                                .sessions = {{1, 2, 4, 8, 16}, 5},
                                .positions = {{0, 500, 1000}, 3}};
    *help = false;
    optind = 0; /* argv is the subcommand's own */
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case MODEL:
            options->model = optarg;
            break;
        case DEVICE:
            options->device = optarg;
            break;
        case ROWS:
            if (!parse_list(optarg, 1, EXECUTOR_MAX_ROWS, &options->rows))
                return wrong_option("--rows must be up to 16 numbers from 1 to 256, such as 1,8,256", optarg);
            break;
        case SESSIONS:
            if (!parse_list(optarg, 1, EXECUTOR_MAX_ROWS, &options->sessions))
                return wrong_option("--sessions must be up to 16 numbers from 1 to 256, such as 1,8,16", optarg);
            break;
        case POSITIONS:
            if (!parse_list(optarg, 0, MAX_POSITION, &options->positions))
                return wrong_option("--positions must be up to 16 numbers from 0 to 1048576, such as 0,500", optarg);
            break;
        case ROOF:
            options->roof = true;
            break;
        case PROFILE:
            options->profile = true;
            break;
        case JSON:
            options->json = true;
            break;
        case HELP:
            *help = true;
            fputs(usage, stdout);
            return false;
        default:
            return false; /* getopt has said what is wrong */
        }
    }
    if (optind < argc)
        return wrong_option("unexpected argument", argv[optind]);
    if (options->model == NULL && (!options->roof || options->profile))
        return wrong_option("--model is required", NULL);
    return true;
}

static int largest(const struct bench_list *list)
{
    int most = 0;
    for (int i = 0; i < list->n; i++)
        most = list->values[i] > most ? list->values[i] : most;
    return most;
}

/* Room for the deepest position, as far as the model goes. */
static enum npu_status load(struct npu_loaded *loaded, const struct options *options, struct npu_error *error)
{
    int positions = largest(&options->positions) + largest(&options->rows);
    struct npu_load_options load = {.model_path = options->model,
                                    .device = options->device,
                                    .context = positions < 64 ? 64 : positions,
                                    .parallel = largest(&options->sessions)};
    return npu_load(loaded, &load, error);
}

/* A generation of one session and the largest prompt step, at the middle of the positions. */
static enum npu_status profile(struct bench_profiled *profiles, int *n_profiles, struct executor *executor,
                               const struct options *options, struct npu_error *error)
{
    int position = options->positions.values[options->positions.n / 2];
    struct bench_profiled wanted[] = {{.generation = true, .n_rows = options->sessions.values[0], .position = position},
                                      {.n_rows = largest(&options->rows), .position = position}};
    enum npu_status status = NPU_OK;
    for (int i = 0; i < 2 && status == NPU_OK; i++) {
        bool fits = false;
        struct bench_profiled *next = &profiles[*n_profiles];
        *next = wanted[i];
        status = bench_points_profile(&next->profile, executor, next->generation, next->n_rows, position, &fits, error);
        *n_profiles += status == NPU_OK && fits;
    }
    return status;
}

static enum npu_status bench(const struct options *options, struct npu_error *error)
{
    struct npu_loaded loaded = {0};
    struct bench_points *points = calloc(1, sizeof *points);
    struct bench_profiled *profiles = calloc(2, sizeof *profiles);
    struct bench_roof roof;
    struct bench_report report = {.profiles = profiles};
    enum npu_status status = NPU_OK;
    if (points == NULL || profiles == NULL)
        status = npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the measurements");
    if (status == NPU_OK && options->roof) {
        status = bench_measure_roof(&roof, options->device, error);
        report.roof = &roof;
    }
    if (status == NPU_OK && options->model != NULL) {
        status = load(&loaded, options, error);
        report.tested = loaded.description;
    }
    if (status == NPU_OK && options->profile)
        status = profile(profiles, &report.n_profiles, loaded.executor, options, error);
    if (status == NPU_OK && options->model != NULL && !options->profile) {
        status = bench_points_measure(points, loaded.executor, &options->rows, &options->sessions, &options->positions,
                                      error);
        report.points = points;
    }
    if (status == NPU_OK && !options->json)
        bench_report_print(&report, stdout);
    else if (status == NPU_OK && !bench_report_print_json(&report, stdout))
        status = npu_error_set(error, NPU_ERROR_SYSTEM, "the report could not be written");
    if (loaded.executor != NULL)
        npu_unload(&loaded);
    free(points);
    free(profiles);
    return status;
}

int npuctl_bench(int argc, char **argv)
{
    struct options options;
    bool help;
    if (!parse_options(&options, argc, argv, &help))
        return help ? 0 : 2;
    struct npu_error error = {0};
    if (bench(&options, &error) != NPU_OK) {
        fprintf(stderr, "npuctl bench: %s\n", error.message);
        return 1;
    }
    return 0;
}
