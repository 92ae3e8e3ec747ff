/* The small models of tests/data/reference with the logits of Hugging Face transformers (tests/reference makes them). */
#ifndef TESTS_REFERENCE_FIXTURE_H
#define TESTS_REFERENCE_FIXTURE_H

#include <stdio.h>

#include "daemon/npuctl/verify_report.h"
#include "npu/gguf.h"
#include "npu/model.h"
#include "npu/reference/reference_executor.h"

/* Limit of issue and documentation for float32 weights: no logit of the reference executor is farther off. */
#define REFERENCE_MAX_DIFFERENCE 2e-3

struct reference_fixture {
    struct gguf_file *file;
    struct model *model;
    struct verify_cases cases;
};

static inline enum npu_status reference_fixture_open(struct reference_fixture *fixture, const char *name,
                                                     struct npu_error *error)
{
    char path[512];
    *fixture = (struct reference_fixture){0};
    snprintf(path, sizeof path, "%s/reference/%s.gguf", TEST_DATA_DIR, name);
    enum npu_status status = gguf_open(&fixture->file, path, error);
    if (status == NPU_OK)
        status = model_create(&fixture->model, fixture->file, error);
    snprintf(path, sizeof path, "%s/reference/%s.json", TEST_DATA_DIR, name);
    if (status == NPU_OK)
        status = verify_cases_read(&fixture->cases, path, fixture->model->n_vocab, error);
    return status;
}

static inline void reference_fixture_close(struct reference_fixture *fixture)
{
    verify_cases_destroy(&fixture->cases);
    model_destroy(fixture->model);
    gguf_close(fixture->file);
}

/* Runs the fixture's cases on the reference executor, the reference's tokens fed. */
static inline enum npu_status reference_fixture_run(const struct reference_fixture *fixture, bool kv_f16,
                                                    struct verify_report *ret_report, struct npu_error *error)
{
    int positions = verify_cases_positions(&fixture->cases);
    int n_blocks = (positions + KV_BLOCK_TOKENS - 1) / KV_BLOCK_TOKENS;
    struct reference_options options = {
        .n_blocks = n_blocks, .max_tables = 1, .max_context = n_blocks * KV_BLOCK_TOKENS, .kv_f16 = kv_f16};
    struct executor *executor = NULL;
    enum npu_status status = reference_executor_create(&executor, fixture->model, &options, error);
    if (status == NPU_OK)
        status = verify_run(ret_report, executor, &fixture->cases, true, error);
    executor_destroy(executor);
    return status;
}

#endif
