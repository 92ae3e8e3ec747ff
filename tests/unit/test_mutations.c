/* Would the comparison with transformers see a mistake? Each mutation spoils one thing in a model's description, and must
 * push a logit past the limit. (The scale of the sum of Gemma 4's per-layer inputs is not among them: the norm that follows
 * takes it out again.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "reference_fixture.h"

typedef int mutation_function(struct model *model);

/* Runs change on each op that it accepts; returns how many it changed. */
static int each_op(struct model *model, int (*change)(struct model *model, struct op *op))
{
    int changed = 0;
    for (int i = 0; i < model->graph.n_ops; i++)
        changed += change(model, &model->graph.ops[i]);
    return changed;
}

static int named(const struct op *op, const char *part)
{
    return op->weight != NULL && strstr(op->weight->name, part) != NULL;
}

/* Turns a norm into a copy. */
static int without_norm(struct op *op)
{
    int width = op->n_heads * op->head_size;
    op->kind = OP_SCALE;
    op->scale = 1.0f;
    op->width = width;
    return 1;
}

static int drop_softcap_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_SOFTCAP)
        return 0;
    op->kind = OP_SCALE;
    op->scale = 1.0f;
    return 1;
}

static int drop_softcap(struct model *model)
{
    return each_op(model, drop_softcap_op);
}

static int widen_window(struct model *model)
{
    model->window++;
    return 1;
}

static int narrow_window(struct model *model)
{
    model->window--;
    return 1;
}

static int see_everything_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_ATTENTION || op->window != WINDOW_SLIDING)
        return 0;
    op->window = WINDOW_FULL;
    return 1;
}

static int see_everything(struct model *model)
{
    return each_op(model, see_everything_op);
}

static int swap_ropes_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_ROPE)
        return 0;
    op->rope = 1 - op->rope;
    return 1;
}

static int swap_ropes(struct model *model)
{
    return each_op(model, swap_ropes_op);
}

static int full_rope_in_sliding_layers(struct model *model)
{
    model->ropes[1].base = model->ropes[0].base;
    return 1;
}

static int turn_whole_heads(struct model *model)
{
    int had = model->ropes[0].factors != NULL;
    model->ropes[0].factors = NULL;
    return had;
}

static int unscaled_positions(struct model *model)
{
    int had = model->ropes[0].position_scale != 1.0;
    model->ropes[0].position_scale = 1.0;
    return had;
}

static int other_pairs(struct model *model)
{
    model->ropes[0].interleaved = !model->ropes[0].interleaved;
    return 1;
}

static int wrong_source_op(struct model *model, struct op *op)
{
    /* The last layers share: a KV layer of the same shape that is not the last of its type. */
    if (op->kind != OP_ATTENTION || op->layer < model->n_kv_layers)
        return 0;
    for (int i = 0; i < model->n_kv_layers; i++) {
        if (i != op->kv_layer && model->kv_layers[i].head_size == model->kv_layers[op->kv_layer].head_size) {
            op->kv_layer = i;
            return 1;
        }
    }
    return 0;
}

static int wrong_source(struct model *model)
{
    return each_op(model, wrong_source_op);
}

static int skip_value_norm_op(struct model *model, struct op *op)
{
    (void)model;
    return op->kind == OP_RMS_NORM && op->weight == NULL ? without_norm(op) : 0;
}

static int skip_value_norm(struct model *model)
{
    return each_op(model, skip_value_norm_op);
}

static int skip_query_norm_op(struct model *model, struct op *op)
{
    (void)model;
    return op->kind == OP_RMS_NORM && named(op, "attn_q_norm") ? without_norm(op) : 0;
}

static int skip_query_norm(struct model *model)
{
    return each_op(model, skip_query_norm_op);
}

static int skip_key_norm_op(struct model *model, struct op *op)
{
    (void)model;
    return op->kind == OP_RMS_NORM && named(op, "attn_k_norm") ? without_norm(op) : 0;
}

static int skip_key_norm(struct model *model)
{
    return each_op(model, skip_key_norm_op);
}

static int skip_post_norms_op(struct model *model, struct op *op)
{
    (void)model;
    return op->kind == OP_RMS_NORM && named(op, ".post_") ? without_norm(op) : 0;
}

static int skip_post_norms(struct model *model)
{
    return each_op(model, skip_post_norms_op);
}

static int skip_output_scale_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_SCALE || op->layer == NO_INDEX)
        return 0;
    op->scale = 1.0f;
    return 1;
}

static int skip_output_scale(struct model *model)
{
    return each_op(model, skip_output_scale_op);
}

/* The scales of the two parts of per-layer inputs: the token's, and the projection's before its norm. */
static int swap_input_scales(struct model *model)
{
    struct op *lookup = NULL, *projection = NULL;
    for (int i = 0; i < model->graph.n_ops; i++) {
        struct op *op = &model->graph.ops[i];
        if (op->kind == OP_LOOKUP)
            lookup = op;
        if (op->kind == OP_SCALE && op->layer == NO_INDEX && projection == NULL)
            projection = op;
    }
    if (lookup == NULL || projection == NULL)
        return 0;
    float scale = lookup->scale;
    lookup->scale = projection->scale;
    projection->scale = scale;
    return 1;
}

static int first_layers_input_op(struct model *model, struct op *op)
{
    (void)model;
    int moved = op->kind == OP_GATED && op->in2_offset != 0;
    op->in2_offset = 0;
    return moved;
}

static int first_layers_input(struct model *model)
{
    return each_op(model, first_layers_input_op);
}

static int other_attention_scale_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_ATTENTION)
        return 0;
    op->scale = op->scale == 1.0f ? 1.0f / sqrtf((float)op->head_size) : 1.0f;
    return 1;
}

static int other_attention_scale(struct model *model)
{
    return each_op(model, other_attention_scale_op);
}

static int other_activation_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_GATED)
        return 0;
    op->function = op->function == ACTIVATION_SILU ? ACTIVATION_GELU_TANH : ACTIVATION_SILU;
    return 1;
}

static int other_activation(struct model *model)
{
    return each_op(model, other_activation_op);
}

static int unscaled_embedding_op(struct model *model, struct op *op)
{
    (void)model;
    if (op->kind != OP_EMBED)
        return 0;
    op->scale = 1.0f;
    return 1;
}

static int unscaled_embedding(struct model *model)
{
    return each_op(model, unscaled_embedding_op);
}

static int drop_biases_op(struct model *model, struct op *op)
{
    (void)model;
    int had = op->bias != NULL;
    op->bias = NULL;
    return had;
}

static int drop_biases(struct model *model)
{
    return each_op(model, drop_biases_op);
}

/* Where keys serve as values: the values take the keys' norm weights. */
static int weighted_value_norm_op(struct model *model, struct op *op)
{
    if (op->kind != OP_RMS_NORM || op->weight != NULL || op->in == op->out)
        return 0;
    for (int i = 0; i < model->n_weights; i++) {
        if (strstr(model->weights[i].name, "attn_k_norm") && model->weights[i].n_in == op->head_size)
            op->weight = &model->weights[i];
    }
    return op->weight != NULL;
}

static int weighted_value_norm(struct model *model)
{
    return each_op(model, weighted_value_norm_op);
}

static const struct {
    const char *fixture;
    const char *name;
    mutation_function *mutate;
} mutations[] = {
    {"gemma4", "drop the softcap", drop_softcap},
    {"gemma4", "window one wider", widen_window},
    {"gemma4", "window one narrower", narrow_window},
    {"gemma4", "full attention in sliding layers", see_everything},
    {"gemma4", "the full layers' rope base in sliding layers", full_rope_in_sliding_layers},
    {"gemma4", "turn whole heads in full layers", turn_whole_heads},
    {"gemma4", "K/V of the wrong source layer", wrong_source},
    {"gemma4-odd-sharing", "K/V of the wrong source layer", wrong_source},
    {"gemma4", "skip the value norm", skip_value_norm},
    {"gemma4", "skip the query norm", skip_query_norm},
    {"gemma4", "skip the key norm", skip_key_norm},
    {"gemma4", "skip the norms after attention, feed-forward and input", skip_post_norms},
    {"gemma4", "skip the layers' output scales", skip_output_scale},
    {"gemma4", "swap the scales of the per-layer inputs", swap_input_scales},
    {"gemma4", "the first layer's input everywhere", first_layers_input},
    {"gemma4", "scale attention by the head size", other_attention_scale},
    {"gemma4", "SiLU for GELU", other_activation},
    {"gemma4", "do not scale embeddings", unscaled_embedding},
    {"gemma4-keys-as-values", "norm values with the keys' weights", weighted_value_norm},
    {"gemma3", "window one wider", widen_window},
    {"gemma3", "window one narrower", narrow_window},
    {"gemma3", "swap the ropes of sliding and full layers", swap_ropes},
    {"gemma3", "the full layers' rope in sliding layers", full_rope_in_sliding_layers},
    {"gemma3", "skip the norms after attention and feed-forward", skip_post_norms},
    {"gemma3", "SiLU for GELU", other_activation},
    {"gemma3", "do not scale embeddings", unscaled_embedding},
    {"gemma3-odd-layers", "full attention in sliding layers", see_everything},
    {"gemma3-softcap", "drop the softcap", drop_softcap},
    {"llama", "turn the two halves of a head", other_pairs},
    {"llama", "do not scale attention", other_attention_scale},
    {"llama", "GELU for SiLU", other_activation},
    {"llama-mqa-llama3-rope", "drop the frequency factors", turn_whole_heads},
    {"llama-linear-rope-bias", "do not scale positions", unscaled_positions},
    {"llama-linear-rope-bias", "drop the biases", drop_biases},
    {"qwen2", "turn neighbours", other_pairs},
    {"qwen2", "drop the biases", drop_biases},
    {"qwen3", "skip the query norm", skip_query_norm},
    {"qwen3", "skip the key norm", skip_key_norm},
};

static void every_mutation_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mutations / sizeof mutations[0]; i++) {
        struct reference_fixture fixture;
        struct npu_error error = {0};
        struct verify_report report;
        if (reference_fixture_open(&fixture, mutations[i].fixture, &error) != NPU_OK)
            fail_msg("%s", error.message);
        if (mutations[i].mutate(fixture.model) == 0)
            fail_msg("%s: there is nothing to change for \"%s\"", mutations[i].fixture, mutations[i].name);
        assert_int_equal(reference_fixture_run(&fixture, false, &report, &error), NPU_OK);
        if (report.max_difference <= REFERENCE_MAX_DIFFERENCE)
            fail_msg("%s: \"%s\" passes with max|diff| %g", mutations[i].fixture, mutations[i].name,
                     report.max_difference);
        print_message("%s, %s: max|diff| %.3g, %d of %d choices agree\n", mutations[i].fixture, mutations[i].name,
                      report.max_difference, report.n_agree, report.n_compared);
        verify_report_destroy(&report);
        reference_fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutation_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
