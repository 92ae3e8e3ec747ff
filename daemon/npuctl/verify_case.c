#include "daemon/npuctl/verify_case.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu/compare.h"

enum {
    MAX_POSITIONS = 1 << 20
};

static enum npu_status no_memory(struct npu_error *error)
{
    return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the logits to compare with");
}

static void case_destroy(struct verify_case *c)
{
    free(c->prompt);
    free(c->tokens);
    free(c->prefill_logits);
    free(c->step_logits);
}

void verify_cases_destroy(struct verify_cases *cases)
{
    for (int i = 0; i < cases->n_cases; i++)
        case_destroy(&cases->cases[i]);
    free(cases->cases);
    *cases = (struct verify_cases){0};
}

int verify_cases_positions(const struct verify_cases *cases)
{
    int most = 0;
    for (int i = 0; i < cases->n_cases; i++) {
        int positions = cases->cases[i].n_prompt + cases->cases[i].n_steps;
        most = positions > most ? positions : most;
    }
    return most;
}

static enum npu_status feed_chunk(struct executor *executor, const struct block_table *table, const int32_t *tokens,
                                  int n, int first, float *logits, struct npu_error *error)
{
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct row_result results[EXECUTOR_MAX_ROWS];
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < n; i++) {
        rows[i].token = tokens[i];
        rows[i].position = first + i;
        rows[i].visible_end = first + i + 1;
        rows[i].returns = ROW_RETURN_LOGITS;
    }
    struct step step = {rows, n, table, 1};
    enum npu_status status = executor_step(executor, &step, results, error);
    for (int i = 0; status == NPU_OK && i < n; i++)
        memcpy(logits + (size_t)i * (size_t)executor->n_vocab, results[i].logits,
               (size_t)executor->n_vocab * sizeof *logits);
    return status;
}

enum npu_status verify_feed(struct executor *executor, const int32_t *tokens, int n, int first, float *logits,
                            struct npu_error *error)
{
    int n_blocks = (first + n + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    int32_t *blocks = malloc((size_t)n_blocks * sizeof *blocks);
    if (blocks == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a block table");
    for (int i = 0; i < n_blocks; i++)
        blocks[i] = i;
    struct block_table table = {blocks, n_blocks};
    int chunk = executor->max_rows < executor->max_returning ? executor->max_rows : executor->max_returning;
    enum npu_status status = NPU_OK;
    for (int done = 0; status == NPU_OK && done < n;) {
        int now = n - done < chunk ? n - done : chunk;
        status = feed_chunk(executor, &table, tokens + done, now, first + done,
                            logits + (size_t)done * (size_t)executor->n_vocab, error);
        done += now;
    }
    free(blocks);
    return status;
}

enum npu_status verify_cases_compute(struct verify_cases *ret_cases, struct executor *executor, const int32_t *prompt,
                                     int n_prompt, int n_steps, struct npu_error *error)
{
    size_t n_vocab = (size_t)executor->n_vocab;
    struct verify_cases cases = {calloc(1, sizeof *cases.cases), 1};
    if (cases.cases == NULL)
        return no_memory(error);
    struct verify_case *c = cases.cases;
    c->n_prompt = n_prompt;
    c->n_steps = n_steps;
    c->prompt = malloc((size_t)n_prompt * sizeof *c->prompt);
    c->tokens = malloc(((size_t)n_steps + 1) * sizeof *c->tokens);
    c->prefill_logits = malloc((size_t)n_prompt * n_vocab * sizeof(float));
    c->step_logits = malloc(((size_t)n_steps + 1) * n_vocab * sizeof(float));
    enum npu_status status = NPU_OK;
    if (c->prompt == NULL || c->tokens == NULL || c->prefill_logits == NULL || c->step_logits == NULL) {
        status = no_memory(error);
        goto failed;
    }
    memcpy(c->prompt, prompt, (size_t)n_prompt * sizeof *prompt);
    status = verify_feed(executor, prompt, n_prompt, 0, c->prefill_logits, error);
    for (int k = 0; status == NPU_OK && k < n_steps; k++) {
        float *logits = c->step_logits + (size_t)k * n_vocab;
        if (k == 0)
            memcpy(logits, c->prefill_logits + ((size_t)n_prompt - 1) * n_vocab, n_vocab * sizeof *logits);
        else
            status = verify_feed(executor, &c->tokens[k - 1], 1, n_prompt + k - 1, logits, error);
        c->tokens[k] = logit_argmax(logits, (int)n_vocab);
    }
    if (status != NPU_OK)
        goto failed;
    *ret_cases = cases;
    return NPU_OK;

failed:
    verify_cases_destroy(&cases);
    return status;
}

/* Reading a file. `where` names the place in messages. */

static enum npu_status read_token(const json_t *value, int32_t n_vocab, const char *where, int32_t *out,
                                  struct npu_error *error)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) >= n_vocab)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s must be a token id from 0 to %d", where, n_vocab - 1);
    *out = (int32_t)json_integer_value(value);
    return NPU_OK;
}

static enum npu_status read_logits(const json_t *array, int32_t n_vocab, const char *where, float *out,
                                   struct npu_error *error)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)n_vocab)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s must be an array of %d numbers (the model's vocabulary), not %zu", where, n_vocab,
                             json_array_size(array));
    for (int32_t i = 0; i < n_vocab; i++) {
        const json_t *value = json_array_get(array, (size_t)i);
        if (!json_is_number(value))
            return npu_error_set(error, NPU_ERROR_INPUT, "%s[%d] must be a number", where, i);
        out[i] = (float)json_number_value(value);
    }
    return NPU_OK;
}

static enum npu_status read_prompt(struct verify_case *c, const json_t *json, int32_t n_vocab, const char *where,
                                   struct npu_error *error)
{
    const json_t *prompt = json_object_get(json, "prompt");
    size_t n = json_array_size(prompt);
    if (n < 1 || n > MAX_POSITIONS)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s.prompt must be an array of 1 to %d token ids", where,
                             MAX_POSITIONS);
    c->prompt = malloc(n * sizeof *c->prompt);
    if (c->prompt == NULL)
        return no_memory(error);
    c->n_prompt = (int)n;
    char place[96];
    snprintf(place, sizeof place, "each element of %s.prompt", where);
    enum npu_status status = NPU_OK;
    for (size_t i = 0; status == NPU_OK && i < n; i++)
        status = read_token(json_array_get(prompt, i), n_vocab, place, &c->prompt[i], error);
    return status;
}

static enum npu_status read_prefill(struct verify_case *c, const json_t *json, int32_t n_vocab, const char *where,
                                    struct npu_error *error)
{
    const json_t *prefill = json_object_get(json, "prefill_logits");
    if (prefill == NULL || json_is_null(prefill))
        return NPU_OK;
    if (json_array_size(prefill) != (size_t)c->n_prompt)
        return npu_error_set(error, NPU_ERROR_INPUT,
                             "%s.prefill_logits must be null or an array of %d arrays, one per token "
                             "of the prompt",
                             where, c->n_prompt);
    c->prefill_logits = malloc((size_t)c->n_prompt * (size_t)n_vocab * sizeof *c->prefill_logits);
    if (c->prefill_logits == NULL)
        return no_memory(error);
    enum npu_status status = NPU_OK;
    for (int i = 0; status == NPU_OK && i < c->n_prompt; i++) {
        char place[96];
        snprintf(place, sizeof place, "%s.prefill_logits[%d]", where, i);
        status = read_logits(json_array_get(prefill, (size_t)i), n_vocab, place,
                             c->prefill_logits + (size_t)i * (size_t)n_vocab, error);
    }
    return status;
}

static enum npu_status read_steps(struct verify_case *c, const json_t *json, int32_t n_vocab, const char *where,
                                  struct npu_error *error)
{
    const json_t *steps = json_object_get(json, "steps");
    size_t n = json_array_size(steps);
    if (!json_is_array(steps) || n > MAX_POSITIONS)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s.steps must be an array of at most %d objects", where,
                             MAX_POSITIONS);
    c->n_steps = (int)n;
    c->tokens = malloc((n + 1) * sizeof *c->tokens);
    c->step_logits = malloc((n + 1) * (size_t)n_vocab * sizeof *c->step_logits);
    if (c->tokens == NULL || c->step_logits == NULL)
        return no_memory(error);
    enum npu_status status = NPU_OK;
    for (size_t k = 0; status == NPU_OK && k < n; k++) {
        const json_t *step = json_array_get(steps, k);
        char place[96];
        snprintf(place, sizeof place, "%s.steps[%zu].argmax", where, k);
        status = read_token(json_object_get(step, "argmax"), n_vocab, place, &c->tokens[k], error);
        snprintf(place, sizeof place, "%s.steps[%zu].logits", where, k);
        if (status == NPU_OK)
            status = read_logits(json_object_get(step, "logits"), n_vocab, place, c->step_logits + k * (size_t)n_vocab,
                                 error);
    }
    return status;
}

static enum npu_status read_cases(struct verify_cases *cases, const json_t *root, int32_t n_vocab,
                                  struct npu_error *error)
{
    const json_t *array = json_object_get(root, "cases");
    size_t n = json_array_size(array);
    if (n < 1 || n > 100000)
        return npu_error_set(error, NPU_ERROR_INPUT, "\"cases\" must be an array of 1 to 100000 objects");
    cases->cases = calloc(n, sizeof *cases->cases);
    if (cases->cases == NULL)
        return no_memory(error);
    enum npu_status status = NPU_OK;
    for (size_t i = 0; status == NPU_OK && i < n; i++) {
        struct verify_case *c = &cases->cases[cases->n_cases++];
        const json_t *json = json_array_get(array, i);
        char where[48];
        snprintf(where, sizeof where, "cases[%zu]", i);
        status = read_prompt(c, json, n_vocab, where, error);
        if (status == NPU_OK)
            status = read_prefill(c, json, n_vocab, where, error);
        if (status == NPU_OK)
            status = read_steps(c, json, n_vocab, where, error);
    }
    return status;
}

enum npu_status verify_cases_read(struct verify_cases *ret_cases, const char *path, int32_t n_vocab,
                                  struct npu_error *error)
{
    json_error_t parse_error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &parse_error);
    if (root == NULL)
        return npu_error_set(error, NPU_ERROR_INPUT, "%s: line %d, column %d: %s", path, parse_error.line,
                             parse_error.column, parse_error.text);
    struct verify_cases cases = {0};
    enum npu_status status = read_cases(&cases, root, n_vocab, error);
    json_decref(root);
    if (status != NPU_OK) {
        verify_cases_destroy(&cases);
        return npu_error_prefix(error, "%s", path);
    }
    *ret_cases = cases;
    return NPU_OK;
}
