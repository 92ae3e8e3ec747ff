#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "tiny_llama.h"

static void expect_error(struct tiny_llama_config config, enum npu_status status, const char *says)
{
    struct tiny_llama llama;
    struct npu_error error = {0};
    assert_int_equal(tiny_llama_open(&llama, &config, &error), status);
    assert_int_equal(error.status, status);
    if (strstr(error.message, says) == NULL)
        fail_msg("the message is \"%s\"; it must say \"%s\"", error.message, says);
    assert_non_null(strstr(error.message, "tiny.gguf"));
    assert_null(llama.model);
    tiny_llama_close(&llama);
}

static void a_llama_is_described_by_its_file(void **state)
{
    (void)state;
    struct tiny_llama llama;
    struct npu_error error = {0};
    assert_int_equal(tiny_llama_open(&llama, &tiny_llama_default, &error), NPU_OK);
    const struct model *model = llama.model;
    assert_string_equal(model->architecture, "llama");
    assert_int_equal(model->n_layers, 2);
    assert_int_equal(model->n_embd, 32);
    assert_int_equal(model->n_vocab, 61);
    assert_int_equal(model->trained_context, 512);
    assert_int_equal(model->window, 0);
    assert_int_equal(model->n_kv_layers, 2);
    assert_int_equal(model->kv_layers[1].n_heads, 2);
    assert_int_equal(model->kv_layers[1].head_size, 8);
    assert_int_equal(model->n_ropes, 1);
    assert_int_equal(model->ropes[0].dims, 8);
    assert_true(model->ropes[0].base == 10000.0 && model->ropes[0].position_scale == 1.0);
    assert_true(model->ropes[0].interleaved);
    assert_int_equal(model->n_weights, gguf_n_tensors(llama.file));
    const struct op *last = &model->graph.ops[model->graph.n_ops - 1];
    assert_int_equal(last->kind, OP_MATMUL);
    assert_string_equal(last->weight->name, "token_embd.weight"); /* tied */
    assert_int_equal(last->out, model->graph.logits);
    assert_string_equal(model->graph.activations[model->graph.hidden].name, "normed");
    tiny_llama_close(&llama);
}

static void pooling_by_mean(struct gguf_writer *writer)
{
    write_u32(writer, "llama.pooling_type", 1);
}

static void pooling_by_class(struct gguf_writer *writer)
{
    write_u32(writer, "llama.pooling_type", 2);
}

static void pooling_by_last(struct gguf_writer *writer)
{
    write_u32(writer, "llama.pooling_type", 3);
}

/* What it names beyond mean and last is for models that are no decoders. */
static void the_file_may_name_the_pooling(void **state)
{
    (void)state;
    static const struct {
        void (*extra)(struct gguf_writer *writer);
        enum pooling pooling;
    } cases[] = {{NULL, POOLING_NONE},
                 {pooling_by_mean, POOLING_MEAN},
                 {pooling_by_class, POOLING_NONE},
                 {pooling_by_last, POOLING_LAST}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tiny_llama llama;
        struct tiny_llama_config config = tiny_llama_default;
        config.extra = cases[i].extra;
        assert_int_equal(tiny_llama_open(&llama, &config, NULL), NPU_OK);
        assert_int_equal(llama.model->pooling, cases[i].pooling);
        tiny_llama_close(&llama);
    }
}

static void rows_are_gathered_right_after_the_last_kv_write(void **state)
{
    (void)state;
    struct tiny_llama llama;
    assert_int_equal(tiny_llama_open(&llama, &tiny_llama_default, NULL), NPU_OK);
    const struct op_graph *graph = &llama.model->graph;
    int last_write = 0, gathers = 0;
    for (int i = 0; i < graph->n_ops; i++) {
        if (graph->ops[i].kind == OP_KV_WRITE)
            last_write = i;
        gathers += graph->ops[i].kind == OP_GATHER;
    }
    assert_int_equal(gathers, 1);
    assert_int_equal(graph->ops[last_write + 1].kind, OP_GATHER);
    tiny_llama_close(&llama);
}

static void an_output_matrix_and_biases_are_used_where_the_file_has_them(void **state)
{
    (void)state;
    struct tiny_llama llama;
    struct tiny_llama_config config = tiny_llama_default;
    config.untied = config.query_bias = true;
    assert_int_equal(tiny_llama_open(&llama, &config, NULL), NPU_OK);
    const struct op_graph *graph = &llama.model->graph;
    assert_string_equal(graph->ops[graph->n_ops - 1].weight->name, "output.weight");
    int biases = 0;
    for (int i = 0; i < graph->n_ops; i++)
        biases += graph->ops[i].bias != NULL;
    assert_int_equal(biases, 2);
    tiny_llama_close(&llama);
}

static void an_unknown_architecture_is_named(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.architecture = "mamba9";
    expect_error(config, NPU_ERROR_UNSUPPORTED, "architecture \"mamba9\" is not supported (supported: llama");
    config.architecture = NULL;
    config.without_key = "general.architecture";
    expect_error(config, NPU_ERROR_INPUT, "general.architecture is missing");
}

static void a_missing_key_is_named(void **state)
{
    (void)state;
    static const char *const keys[] = {"llama.block_count",          "llama.embedding_length",
                                       "llama.context_length",       "llama.feed_forward_length",
                                       "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct tiny_llama_config config = tiny_llama_default;
        config.without_key = keys[i];
        char says[96];
        snprintf(says, sizeof says, "metadata %s is missing", keys[i]);
        expect_error(config, NPU_ERROR_INPUT, says);
    }
}

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    static const char *const tensors[] = {"token_embd.weight",     "blk.0.attn_norm.weight", "blk.1.attn_q.weight",
                                          "blk.1.attn_k.weight",   "blk.0.attn_v.weight",    "blk.0.attn_output.weight",
                                          "blk.1.ffn_norm.weight", "blk.0.ffn_gate.weight",  "blk.1.ffn_up.weight",
                                          "blk.0.ffn_down.weight", "output_norm.weight"};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        struct tiny_llama_config config = tiny_llama_default;
        config.without_tensor = tensors[i];
        char says[96];
        snprintf(says, sizeof says, "tensor %s is missing", tensors[i]);
        expect_error(config, NPU_ERROR_INPUT, says);
    }
}

static void a_wrong_shape_is_named_with_the_right_one(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.misshaped = "blk.1.attn_k.weight";
    expect_error(config, NPU_ERROR_INPUT, "tensor blk.1.attn_k.weight has shape [32, 17, 1, 1]; it must be [32, 16]");
    config.misshaped = "output_norm.weight";
    expect_error(config, NPU_ERROR_INPUT, "tensor output_norm.weight has shape [32, 2, 1, 1]; it must be [32, 1]");
}

static void an_unsupported_type_is_named(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.odd_type = "blk.0.ffn_up.weight";
    expect_error(config, NPU_ERROR_UNSUPPORTED, "tensor blk.0.ffn_up.weight has type MXFP4, which is not supported");
}

static void impossible_numbers_are_refused(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.n_layers = 0;
    expect_error(config, NPU_ERROR_INPUT, "llama.block_count is 0; it must be from 1 to 1024");
    config = tiny_llama_default;
    config.n_layers = 5000;
    expect_error(config, NPU_ERROR_INPUT, "llama.block_count is 5000");
    config = tiny_llama_default;
    config.n_kv_heads = 3;
    expect_error(config, NPU_ERROR_INPUT, "layer 0 has 4 heads, not a multiple of its 3 KV heads");
}

static void write_yarn(struct gguf_writer *writer)
{
    write_string(writer, "llama.rope.scaling.type", "yarn");
}

static void write_experts(struct gguf_writer *writer)
{
    write_u32(writer, "llama.expert_count", 8);
}

static void write_split(struct gguf_writer *writer)
{
    write_u32(writer, "split.count", 3);
}

static void write_tokens(struct gguf_writer *writer)
{
    uint32_t values[60] = {0};
    write_u32_array(writer, "tokenizer.ggml.tokens", values, 60);
}

static void write_odd_rope(struct gguf_writer *writer)
{
    write_u32(writer, "llama.rope.dimension_count", 7);
}

static void write_wide_rope(struct gguf_writer *writer)
{
    write_u32(writer, "llama.rope.dimension_count", 16);
}

static void write_text_for_a_number(struct gguf_writer *writer)
{
    write_string(writer, "llama.rope.freq_base", "big");
}

static void what_is_not_built_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        void (*extra)(struct gguf_writer *);
        enum npu_status status;
        const char *says;
    } cases[] = {
        {write_yarn, NPU_ERROR_UNSUPPORTED, "llama.rope.scaling.type is \"yarn\""},
        {write_experts, NPU_ERROR_UNSUPPORTED, "mixture-of-experts"},
        {write_split, NPU_ERROR_UNSUPPORTED, "one of 3 parts of a split model"},
        {write_tokens, NPU_ERROR_INPUT, "token_embd.weight has 61 rows, but tokenizer.ggml.tokens has 60"},
        {write_odd_rope, NPU_ERROR_INPUT, "rope over 7 dimensions"},
        {write_wide_rope, NPU_ERROR_INPUT, "llama.rope.dimension_count is 16; it must be from 2 to 8"},
        {write_text_for_a_number, NPU_ERROR_INPUT, "llama.rope.freq_base must be a finite number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tiny_llama_config config = tiny_llama_default;
        config.extra = cases[i].extra;
        expect_error(config, cases[i].status, cases[i].says);
    }
}

static void write_gemma4_keys(struct gguf_writer *writer)
{
    write_u32(writer, "gemma4.attention.key_length", 8);
    write_u32(writer, "gemma4.attention.key_length_swa", 8);
    write_u32(writer, "gemma4.attention.sliding_window", 4);
}

static void write_gemma4_experts(struct gguf_writer *writer)
{
    write_gemma4_keys(writer);
    write_u32(writer, "gemma4.expert_count", 128);
}

static void write_gemma4_all_shared(struct gguf_writer *writer)
{
    float factors[4] = {1, 1, 1e30f, 1e30f};
    int64_t dims[1] = {4};
    write_gemma4_keys(writer);
    write_u32(writer, "gemma4.attention.shared_kv_layers", 2);
    write_tensor(writer, "rope_freqs.weight", TENSOR_F32, 1, dims, factors, sizeof factors);
}

static void write_gemma4_flat_rope(struct gguf_writer *writer)
{
    float factors[4] = {1, 1, 0, 1};
    int64_t dims[1] = {4};
    write_gemma4_keys(writer);
    write_tensor(writer, "rope_freqs.weight", TENSOR_F32, 1, dims, factors, sizeof factors);
}

static void a_gemma4_that_cannot_be_run_says_why(void **state)
{
    (void)state;
    struct tiny_llama_config config = tiny_llama_default;
    config.architecture = "gemma4";
    expect_error(config, NPU_ERROR_INPUT, "gemma4.attention.key_length is missing");
    config.extra = write_gemma4_experts;
    expect_error(config, NPU_ERROR_UNSUPPORTED, "mixture-of-experts Gemma 4 models are not supported");
    config.extra = write_gemma4_keys;
    expect_error(config, NPU_ERROR_INPUT, "tensor rope_freqs.weight is missing");
    config.extra = write_gemma4_flat_rope;
    expect_error(config, NPU_ERROR_INPUT, "rope_freqs.weight: element 2 is 0; it must be positive");
    config.extra = write_gemma4_all_shared;
    expect_error(config, NPU_ERROR_INPUT, "gemma4.attention.shared_kv_layers is 2; it must be from 0 to 1");
}

static void write_linear_scaling(struct gguf_writer *writer)
{
    float factors[4] = {1.0f, 1.0f, 2.0f, 8.0f};
    int64_t dims[1] = {4};
    write_string(writer, "llama.rope.scaling.type", "linear");
    write_f32(writer, "llama.rope.scaling.factor", 4.0f);
    write_f32(writer, "llama.rope.freq_base", 500000.0f);
    write_tensor(writer, "rope_freqs.weight", TENSOR_F32, 1, dims, factors, sizeof factors);
}

static void rope_scaling_and_frequency_factors_are_read(void **state)
{
    (void)state;
    struct tiny_llama llama;
    struct tiny_llama_config config = tiny_llama_default;
    config.extra = write_linear_scaling;
    assert_int_equal(tiny_llama_open(&llama, &config, NULL), NPU_OK);
    const struct rope *rope = &llama.model->ropes[0];
    assert_true(rope->position_scale == 0.25 && rope->base == 500000.0);
    assert_non_null(rope->factors);
    float angles[8];
    rope_angles(rope, 40, angles);
    for (int i = 0; i < 4; i++) {
        double angle = 40 * 0.25 * pow(500000.0, -i / 4.0) / (double)rope->factors[i];
        assert_true(angles[i] == (float)cos(angle) && angles[4 + i] == (float)sin(angle));
    }
    tiny_llama_close(&llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_is_described_by_its_file),
        cmocka_unit_test(the_file_may_name_the_pooling),
        cmocka_unit_test(rows_are_gathered_right_after_the_last_kv_write),
        cmocka_unit_test(an_output_matrix_and_biases_are_used_where_the_file_has_them),
        cmocka_unit_test(an_unknown_architecture_is_named),
        cmocka_unit_test(a_missing_key_is_named),
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_wrong_shape_is_named_with_the_right_one),
        cmocka_unit_test(an_unsupported_type_is_named),
        cmocka_unit_test(impossible_numbers_are_refused),
        cmocka_unit_test(what_is_not_built_is_refused_by_name),
        cmocka_unit_test(a_gemma4_that_cannot_be_run_says_why),
        cmocka_unit_test(rope_scaling_and_frequency_factors_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
