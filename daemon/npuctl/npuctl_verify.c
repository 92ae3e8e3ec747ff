#include "daemon/npuctl/npuctl_verify.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/npuctl/verify_case.h"
#include "daemon/npuctl/verify_ops_report.h"
#include "daemon/npuctl/verify_report.h"
#include "daemon/tokenizer.h"
#include "npu/gguf.h"
#include "npu/loader.h"
#include "npu/model.h"
#include "npu/reference/reference_executor.h"

enum {
    MAX_STEPS = 100000
};

static const char usage[] =
    "usage: npuctl verify --model FILE [options]\n"
    "Compares the logits of a device with those of the reference, for a prompt and the greedy steps after it.\n"
    "  --model FILE          GGUF model\n"
    "  --device SEL          index, or text in the platform's or device's name\n"
    "  --executor WHICH      the side that is tested: device (default) or reference\n"
    "  --prompt TEXT         prompt (default: a sentence)\n"
    "  --tokens 1,2,3        prompt as token ids\n"
    "  --steps N             greedy steps after the prompt (default 16)\n"
    "  --reference FILE      compare with the logits in a JSON file instead of the reference executor\n"
    "  --same-token[=yes|no] feed both sides the reference's tokens (default: only with --reference), else each its "
    "own\n"
    "  --max-peir X          limit of the mean PEIR, or of each step's with --reference (default 0.03)\n"
    "  --no-near-ties        every choice must be the reference's\n"
    "  --kv-type TYPE        K/V of the tested side: f16 or f32 (default: f16 on a device, f32 in the reference)\n"
    "  --max-difference X    limit of max|diff| (default: none)\n"
    "  --ops                 check every op of these steps instead, each fed with the device's own inputs (error 1e-4)\n"
    "  --json                print one JSON object\n";

struct options {
    const char *model, *device, *prompt, *tokens, *reference;
    bool test_reference; /* --executor reference */
    bool same_token, same_token_given;
    bool json;
    bool no_near_ties;
    bool ops;
    bool kv_type_given, kv_f32;
    int steps;
    double max_peir, max_difference;
};

/* The tested side and everything that lives as long as it. */
struct subject {
    struct npu_loaded loaded; /* device */
    struct gguf_file *file; /* reference: own file and model */
    struct model *model;
    struct executor *executor;
    const char *description;
};

static bool wrong_option(const char *message, const char *value)
{
    fprintf(stderr, "npuctl verify: %s%s%s (see npuctl verify --help)\n", message, value ? ": " : "",
            value ? value : "");
    return false;
}

static bool parse_number(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return *text != '\0' && *end == '\0' && *out >= 0.0;
}

static bool parse_choice(const char *text, const char *no, const char *yes, bool *out)
{
    *out = strcmp(text, yes) == 0;
    return *out || strcmp(text, no) == 0;
}

/* False: a line on stderr, or help on stdout with *help set. */
static bool parse_options(struct options *options, int argc, char **argv, bool *help)
{
    enum {
        MODEL = 256,
        DEVICE,
        EXECUTOR,
        PROMPT,
        TOKENS,
        STEPS,
        REFERENCE,
        SAME_TOKEN,
        MAX_PEIR,
        MAX_DIFFERENCE,
        NO_NEAR_TIES,
        OPS,
        KV_TYPE,
        JSON,
        HELP
    };
    static const struct option known[] = {
        {"model", required_argument, NULL, MODEL},
        {"device", required_argument, NULL, DEVICE},
        {"executor", required_argument, NULL, EXECUTOR},
        {"prompt", required_argument, NULL, PROMPT},
        {"tokens", required_argument, NULL, TOKENS},
        {"steps", required_argument, NULL, STEPS},
        {"reference", required_argument, NULL, REFERENCE},
        {"same-token", optional_argument, NULL, SAME_TOKEN},
        {"max-peir", required_argument, NULL, MAX_PEIR},
        {"max-difference", required_argument, NULL, MAX_DIFFERENCE},
        {"no-near-ties", no_argument, NULL, NO_NEAR_TIES},
        {"kv-type", required_argument, NULL, KV_TYPE},
        {"ops", no_argument, NULL, OPS},
        {"json", no_argument, NULL, JSON},
        {"help", no_argument, NULL, HELP},
        {0},
    };
    *options = (struct options){.steps = 16, .max_peir = 0.03, .max_difference = INFINITY};
    *help = false;
    optind = 0; /* argv is the subcommand's own */
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        char *end;
        switch (option) {
        case MODEL:
            options->model = optarg;
            break;
        case DEVICE:
            options->device = optarg;
            break;
        case EXECUTOR:
            if (!parse_choice(optarg, "device", "reference", &options->test_reference))
                return wrong_option("--executor must be device or reference", optarg);
            break;
        case PROMPT:
            options->prompt = optarg;
            break;
        case TOKENS:
            options->tokens = optarg;
            break;
        case STEPS:
            errno = 0;
            options->steps = (int)strtol(optarg, &end, 10);
            if (*optarg == '\0' || *end != '\0' || errno != 0 || options->steps < 0 || options->steps > MAX_STEPS)
                return wrong_option("--steps must be a number from 0 to 100000", optarg);
            break;
        case REFERENCE:
            options->reference = optarg;
            break;
        case SAME_TOKEN:
            options->same_token_given = true;
            if (!parse_choice(optarg ? optarg : "yes", "no", "yes", &options->same_token))
                return wrong_option("--same-token must be yes or no", optarg);
            break;
        case MAX_PEIR:
            if (!parse_number(optarg, &options->max_peir))
                return wrong_option("--max-peir must be a number that is not negative", optarg);
            break;
        case MAX_DIFFERENCE:
            if (!parse_number(optarg, &options->max_difference))
                return wrong_option("--max-difference must be a number that is not negative", optarg);
            break;
        case NO_NEAR_TIES:
            options->no_near_ties = true;
            break;
        case KV_TYPE:
            options->kv_type_given = true;
            if (!parse_choice(optarg, "f16", "f32", &options->kv_f32))
                return wrong_option("--kv-type must be f16 or f32", optarg);
            break;
        case OPS:
            options->ops = true;
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
    if (options->model == NULL)
        return wrong_option("--model is required", NULL);
    if (options->prompt && options->tokens)
        return wrong_option("--prompt and --tokens exclude each other", NULL);
    if (options->reference && (options->prompt || options->tokens))
        return wrong_option("--reference has its own prompts: leave out --prompt and --tokens", NULL);
    if (options->ops && (options->reference || options->test_reference))
        return wrong_option("--ops checks a device: leave out --reference and --executor reference", NULL);
    if (!options->same_token_given)
        options->same_token = options->reference != NULL;
    return true;
}

/* "1,2,3" */
static enum npu_status parse_tokens(const char *text, int32_t n_vocab, int32_t **ret_tokens, int32_t *ret_n,
                                    struct npu_error *error)
{
    int32_t *tokens = malloc((strlen(text) / 2 + 1) * sizeof *tokens);
    if (tokens == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the tokens");
    int32_t n = 0;
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long token = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || errno != 0 || token < 0 || token >= n_vocab) {
            free(tokens);
            return npu_error_set(error, NPU_ERROR_INPUT, "--tokens: \"%.20s\" is not a token id from 0 to %d", at,
                                 n_vocab - 1);
        }
        tokens[n++] = (int32_t)token;
        at = end;
        if (*at == '\0')
            break;
    }
    *ret_tokens = tokens;
    *ret_n = n;
    return NPU_OK;
}

static enum npu_status read_prompt(const struct options *options, const struct gguf_file *file, int32_t n_vocab,
                                   int32_t **ret_tokens, int32_t *ret_n, struct npu_error *error)
{
    if (options->tokens)
        return parse_tokens(options->tokens, n_vocab, ret_tokens, ret_n, error);
    struct tokenizer *tokenizer;
    enum npu_status status = tokenizer_create(&tokenizer, file, error);
    if (status != NPU_OK) {
        npu_error_prefix(error, "no text can be made into tokens (give --tokens instead)");
        return status;
    }
    const char *text =
        options->prompt ? options->prompt : "The old lighthouse keeper climbed the stairs every evening, and";
    status = tokenizer_encode(tokenizer, text, strlen(text), true, true, ret_tokens, ret_n, error);
    tokenizer_destroy(tokenizer);
    if (status == NPU_OK && *ret_n == 0) {
        free(*ret_tokens);
        return npu_error_set(error, NPU_ERROR_INPUT, "the prompt has no tokens");
    }
    return status;
}

static enum npu_status create_reference(struct executor **ret_executor, const struct model *model, int positions,
                                        bool kv_f16, struct npu_error *error)
{
    int n_blocks = (positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    struct reference_options options = {
        .n_blocks = n_blocks, .max_tables = 1, .max_context = n_blocks * KV_BLOCK_TOKENS, .kv_f16 = kv_f16};
    return reference_executor_create(ret_executor, model, &options, error);
}

static enum npu_status open_subject(struct subject *subject, const struct options *options, int positions,
                                    struct npu_error *error)
{
    if (options->test_reference) {
        bool kv_f16 = options->kv_type_given && !options->kv_f32;
        subject->description = kv_f16 ? "reference executor, K/V in half precision" : "reference executor";
        return create_reference(&subject->executor, subject->model, positions, kv_f16, error);
    }
    struct npu_load_options load = {.model_path = options->model,
                                    .device = options->device,
                                    .context = positions,
                                    .parallel = 1,
                                    .kv_f32 = options->kv_f32};
    enum npu_status status = npu_load(&subject->loaded, &load, error);
    if (status != NPU_OK)
        return status;
    subject->executor = subject->loaded.executor;
    subject->description = subject->loaded.description;
    return NPU_OK;
}

static void close_subject(struct subject *subject)
{
    if (subject->loaded.executor != NULL)
        npu_unload(&subject->loaded);
    else
        executor_destroy(subject->executor);
}

/* The reference's side: from a file, or computed here and freed before the device takes its memory. */
static enum npu_status make_cases(struct verify_cases *ret_cases, const struct options *options,
                                  const struct gguf_file *file, const struct model *model, struct npu_error *error)
{
    if (options->reference)
        return verify_cases_read(ret_cases, options->reference, model->n_vocab, error);
    int32_t *prompt = NULL, n_prompt = 0;
    enum npu_status status = read_prompt(options, file, model->n_vocab, &prompt, &n_prompt, error);
    if (status != NPU_OK)
        return status;
    struct executor *executor = NULL;
    status = create_reference(&executor, model, n_prompt + options->steps, false, error);
    if (status == NPU_OK)
        status = verify_cases_compute(ret_cases, executor, prompt, n_prompt, options->steps, error);
    executor_destroy(executor);
    free(prompt);
    return status;
}

static enum npu_status verify_ops(const struct options *options, bool *ret_passed, struct npu_error *error)
{
    struct subject subject = {0};
    struct verify_ops_report report = {0};
    int32_t *prompt = NULL, n_prompt = 0;
    enum npu_status status = gguf_open(&subject.file, options->model, error);
    if (status == NPU_OK)
        status = model_create(&subject.model, subject.file, error);
    if (status == NPU_OK)
        status = read_prompt(options, subject.file, subject.model->n_vocab, &prompt, &n_prompt, error);
    if (status == NPU_OK)
        status = open_subject(&subject, options, n_prompt + options->steps, error);
    if (status == NPU_OK)
        status = verify_ops_report_run(&report, subject.executor, prompt, n_prompt, options->steps, error);
    if (status == NPU_OK) {
        *ret_passed = report.n_failed == 0;
        if (!options->json)
            verify_ops_report_print(&report, subject.description, stdout);
        else if (!verify_ops_report_print_json(&report, subject.description, stdout))
            status = npu_error_set(error, NPU_ERROR_SYSTEM, "the report could not be written");
    }
    free(prompt);
    close_subject(&subject);
    model_destroy(subject.model);
    gguf_close(subject.file);
    return status;
}

static enum npu_status verify(const struct options *options, bool *ret_passed, struct npu_error *error)
{
    struct subject subject = {0};
    struct verify_cases cases = {0};
    struct verify_report report = {0};
    enum npu_status status = gguf_open(&subject.file, options->model, error);
    if (status == NPU_OK)
        status = model_create(&subject.model, subject.file, error);
    if (status == NPU_OK)
        status = make_cases(&cases, options, subject.file, subject.model, error);
    if (status == NPU_OK)
        status = open_subject(&subject, options, verify_cases_positions(&cases), error);
    if (status == NPU_OK)
        status = verify_run(&report, subject.executor, &cases, options->same_token, error);
    if (status == NPU_OK) {
        struct verify_limits limits = {.mean_peir = options->max_peir,
                                       .max_peir = options->reference ? options->max_peir : INFINITY,
                                       .max_difference = options->max_difference,
                                       .no_near_ties = options->no_near_ties};
        *ret_passed = verify_report_passes(&report, &limits);
        if (!options->json)
            verify_report_print(&report, subject.description, *ret_passed, stdout);
        else if (!verify_report_print_json(&report, subject.description, *ret_passed, stdout))
            status = npu_error_set(error, NPU_ERROR_SYSTEM, "the report could not be written");
    }
    verify_report_destroy(&report);
    close_subject(&subject);
    verify_cases_destroy(&cases);
    model_destroy(subject.model);
    gguf_close(subject.file);
    return status;
}

int npuctl_verify(int argc, char **argv)
{
    struct options options;
    bool help, passed = false;
    if (!parse_options(&options, argc, argv, &help))
        return help ? 0 : 2;
    struct npu_error error = {0};
    if ((options.ops ? verify_ops : verify)(&options, &passed, &error) != NPU_OK) {
        fprintf(stderr, "npuctl verify: %s\n", error.message);
        return 1;
    }
    return passed ? 0 : 1;
}
