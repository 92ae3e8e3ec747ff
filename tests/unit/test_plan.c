/* The static plan: what entries read and write, taken from the entries themselves, is ordered by barriers and stands in
 * places of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "npu/opencl/pack.h"
#include "npu/opencl/plan.h"
#include "random_model.h"

enum {
    MAX_ROWS = 256,
    MAX_RETURNING = 16,
    MAX_REGIONS = 8 * GRAPH_MAX_ACTIVATIONS
};

static const struct plan_limits limits = {.max_rows = MAX_ROWS,
                                          .max_returning = MAX_RETURNING,
                                          .max_tables = 8,
                                          .max_context = 1000,
                                          .max_segment_bytes = 1 << 30};

/* ---- regions: stretches of the arena that are written and read as one, and the two halves of a layer's K/V ---- */

struct region {
    int64_t begin, end; /* words */
};

struct regions {
    struct region at[MAX_REGIONS];
    int n;
};

static void add_region(struct regions *regions, int64_t begin, int64_t words)
{
    assert_true(regions->n < MAX_REGIONS && begin >= 0);
    regions->at[regions->n++] = (struct region){begin, begin + words};
}

static void find_regions(const struct plan *plan, struct regions *regions)
{
    const struct op_graph *graph = &plan->model->graph;
    regions->n = 0;
    for (int set = 0; set < 2; set++) {
        int64_t rows = set ? MAX_RETURNING : MAX_ROWS;
        for (int a = 0; a < graph->n_activations; a++) {
            int64_t width = plan->activation_strides[a];
            assert_true(width >= graph->activations[a].width);
            if (plan->activation_offsets[set][a] >= 0)
                add_region(regions, plan->activation_offsets[set][a], rows * width);
            if (plan->quantized_offsets[set][a] >= 0)
                add_region(regions, plan->quantized_offsets[set][a], rows * (width / 4 + 3 * (width / 32)));
        }
    }
    add_region(regions, plan->embeddings_offset, (int64_t)MAX_ROWS * plan->model->n_embd);
    add_region(regions, plan->done_offset, 16);
    add_region(regions, plan->select_offset, (int64_t)MAX_RETURNING * plan->select_stride);
    for (int i = 0; i < plan->n_entries; i++) {
        const struct op_entry *e = &plan->entries[i];
        int64_t begins[3] = {-1, -1, -1}, words[3] = {0};
        if (e->kind == ENTRY_ATTENTION) {
            begins[0] = e->scratch;
            words[0] = (int64_t)SPLIT_ROWS * e->scratch_stride;
            begins[1] = e->state;
            words[1] = (int64_t)e->capacity * e->n_heads * (e->head_size + 8);
        } else if (e->kind == ENTRY_SELECT) {
            begins[2] = e->scratch;
            words[2] = (int64_t)e->capacity * e->scratch_stride;
        }
        for (int k = 0; k < 3; k++) {
            bool known = begins[k] < 0;
            for (int r = 0; r < regions->n && !known; r++) {
                if (regions->at[r].begin != begins[k])
                    continue;
                known = true;
                if (regions->at[r].end < begins[k] + words[k]) /* layers differ in size */
                    regions->at[r].end = begins[k] + words[k];
            }
            if (!known)
                add_region(regions, begins[k], words[k]);
        }
    }
}

static int region_of(const struct regions *regions, int64_t word)
{
    for (int r = 0; r < regions->n; r++) {
        if (regions->at[r].begin <= word && word < regions->at[r].end)
            return r;
    }
    fail_msg("word %ld belongs to nothing", (long)word);
    return -1;
}

/* ---- what an entry touches ---- */

struct accesses {
    bool reads[MAX_REGIONS], writes[MAX_REGIONS];
    int kv_layer; /* or -1 */
    bool reads_kv, writes_keys, writes_values;
};

static int kv_layer_of(const struct plan *plan, int offset)
{
    int layer = plan->model->n_kv_layers - 1;
    while (layer > 0 && plan->kv_offsets[layer] > offset)
        layer--;
    return layer;
}

static struct accesses accesses_of(const struct plan *plan, const struct regions *regions, const struct op_entry *e)
{
    struct accesses a = {.kv_layer = -1};
    bool quantizes = e->flags & FLAG_QUANTIZE;
    int in = -1, in2 = -1, out = e->out;
    switch (e->kind) {
    case ENTRY_EMBED:
        break;
    case ENTRY_MATMUL:
        in = pack_layout_is_quantized(e->layout) ? e->quantized : e->in;
        break;
    case ENTRY_HEADS:
        in = e->in;
        if (e->layout != DESTINATION_PLACE) {
            out = -1;
            a.kv_layer = kv_layer_of(plan, e->kv_offset);
            a.writes_keys = e->layout == DESTINATION_KEYS;
            a.writes_values = e->layout == DESTINATION_VALUES;
        }
        break;
    case ENTRY_ATTENTION:
        in = e->in;
        out = -1;
        a.kv_layer = kv_layer_of(plan, e->kv_offset);
        a.reads_kv = true;
        a.writes[region_of(regions, e->scratch)] = a.writes[region_of(regions, e->state)] = true;
        break;
    case ENTRY_ATTENTION_MERGE:
        a.reads[region_of(regions, e->scratch)] = a.reads[region_of(regions, e->state)] = true;
        a.writes[region_of(regions, e->scratch)] = a.writes[region_of(regions, e->state)] = true;
        break;
    case ENTRY_GATED:
    case ENTRY_ADD:
        in = e->in;
        in2 = e->in2;
        break;
    case ENTRY_QUANTIZE:
        in = e->in;
        out = -1;
        assert_true(quantizes);
        break;
    case ENTRY_SELECT:
        in = e->in;
        out = e->scratch;
        break;
    case ENTRY_SELECT_MERGE:
        a.reads[region_of(regions, e->scratch)] = a.writes[region_of(regions, e->scratch)] = true;
        break;
    default: /* norm, scale, softcap, gather */
        in = e->in;
    }
    if (in >= 0)
        a.reads[region_of(regions, in)] = true;
    if (in2 >= 0)
        a.reads[region_of(regions, in2)] = true;
    if (out >= 0)
        a.writes[region_of(regions, out)] = true;
    if (out >= 0 && (e->flags & FLAG_ACCUMULATE))
        a.reads[region_of(regions, out)] = true;
    if (quantizes)
        a.writes[region_of(regions, e->quantized)] = true;
    return a;
}

static bool conflict(const struct accesses *a, const struct accesses *b)
{
    for (int r = 0; r < MAX_REGIONS; r++) {
        if ((a->writes[r] && (b->reads[r] || b->writes[r])) || (a->reads[r] && b->writes[r]))
            return true;
    }
    if (a->kv_layer < 0 || a->kv_layer != b->kv_layer)
        return false;
    return (a->reads_kv && (b->writes_keys || b->writes_values)) ||
           (b->reads_kv && (a->writes_keys || a->writes_values)) || (a->writes_keys && b->writes_keys) ||
           (a->writes_values && b->writes_values);
}

/* ---- checks ---- */

static void check_barriers(const struct plan *plan)
{
    struct regions regions;
    find_regions(plan, &regions);
    struct accesses *accesses = malloc((size_t)plan->n_entries * sizeof *accesses);
    assert_non_null(accesses);
    for (int i = 0; i < plan->n_entries; i++) {
        accesses[i] = accesses_of(plan, &regions, &plan->entries[i]);
        for (int k = i - 1; k >= 0 && !(plan->entries[k].flags & FLAG_BARRIER); k--) {
            if (conflict(&accesses[i], &accesses[k]))
                fail_msg("%s: entries %d (%s) and %d (%s) conflict, and no barrier stands between them",
                         plan->model->architecture, k, plan_entry_name(&plan->entries[k]), i,
                         plan_entry_name(&plan->entries[i]));
        }
        if (i == 0 || !(plan->entries[i - 1].flags & FLAG_BARRIER))
            continue;
        bool needed = false;
        for (int k = i - 1; k >= 0 && (k == i - 1 || !(plan->entries[k].flags & FLAG_BARRIER)); k--)
            needed = needed || conflict(&accesses[i], &accesses[k]);
        if (!needed)
            fail_msg("%s: the barrier before entry %d (%s) parts nothing", plan->model->architecture, i,
                     plan_entry_name(&plan->entries[i]));
    }
    free(accesses);
}

static void check_places(const struct plan *plan)
{
    struct regions regions;
    find_regions(plan, &regions);
    for (int r = 0; r < regions.n; r++) {
        assert_true(regions.at[r].end <= plan->arena_words);
        for (int s = 0; s < r; s++)
            assert_true(regions.at[r].end <= regions.at[s].begin || regions.at[s].end <= regions.at[r].begin);
    }
    for (int i = 0; i < plan->n_weights; i++) {
        const struct packed_weight *w = &plan->weights[i];
        assert_true(w->offset % 64 == 0 && w->offset + w->bytes <= plan->segment_bytes[w->segment]);
        assert_true(w->bytes >= pack_bytes(w->layout, w->weight->n_in, w->weight->n_out));
        for (int k = 0; k < i; k++) {
            const struct packed_weight *other = &plan->weights[k];
            assert_true(other->segment != w->segment || other->offset + other->bytes <= w->offset);
            assert_ptr_not_equal(other->weight, w->weight);
        }
    }
    int kv_elements = 0;
    for (int i = 0; i < plan->model->n_kv_layers; i++) {
        assert_int_equal(plan->kv_offsets[i], kv_elements);
        kv_elements += 2 * KV_TOKENS * plan->model->kv_layers[i].n_heads * plan->model->kv_layers[i].head_size;
    }
    assert_int_equal(plan->block_elements, kv_elements);
    assert_true(plan->rope_offsets[0] >= INPUT_TABLES + limits.max_tables * plan->table_words);
}

/* Every op is some entry's, in order, and entries behind the gather are those of returning rows. */
static void check_cover(const struct plan *plan)
{
    const struct op_graph *graph = &plan->model->graph;
    bool *covered = calloc((size_t)graph->n_ops, sizeof *covered);
    assert_non_null(covered);
    for (int i = 0; i < plan->n_entries; i++) {
        assert_true(plan->first_ops[i] >= 0 && plan->first_ops[i] <= plan->last_ops[i] &&
                    plan->last_ops[i] < graph->n_ops);
        for (int op = plan->first_ops[i]; op <= plan->last_ops[i]; op++)
            covered[op] = true;
        assert_int_equal(plan->entries[i].row_set, i >= plan->gather_entry);
        assert_int_equal(plan->entries[i].capacity, i >= plan->gather_entry ? MAX_RETURNING : MAX_ROWS);
    }
    for (int op = 0; op < graph->n_ops; op++)
        assert_true(covered[op] || graph->ops[op].kind == OP_LOOKUP);
    free(covered);
}

/* The last entry before the head writes the hidden state in floats, and no entry of the head writes there. */
static void check_head(const struct plan *plan)
{
    const struct op_graph *graph = &plan->model->graph;
    int place = plan->activation_offsets[1][graph->hidden];
    assert_in_range(plan->head_entry, plan->gather_entry + 1, plan->n_entries - 1);
    const struct op_entry *last = &plan->entries[plan->head_entry - 1];
    assert_int_equal(last->kind, ENTRY_NORM);
    assert_int_equal(last->out, place);
    bool makes_logits = false;
    for (int i = plan->head_entry; i < plan->n_entries; i++) {
        assert_int_not_equal(plan->entries[i].out, place);
        makes_logits |= plan->entries[i].kind == ENTRY_MATMUL && plan->entries[i].n_out == plan->model->n_vocab;
    }
    assert_true(makes_logits);
}

static void check_static(const struct plan *plan)
{
    struct plan *again = NULL;
    assert_int_equal(plan_create(&again, plan->model, &limits, NULL), NPU_OK);
    assert_int_equal(again->n_entries, plan->n_entries);
    assert_memory_equal(again->entries, plan->entries, (size_t)plan->n_entries * sizeof *plan->entries);
    assert_int_equal(again->arena_words, plan->arena_words);
    assert_int_equal(again->input_words, plan->input_words);
    plan_destroy(again);
}

static const struct {
    const char *architecture;
    uint32_t matrix_type, down_type, window;
} variants[] = {{"llama", TENSOR_F32, TENSOR_F32, 0},     {"llama", TENSOR_Q4_0, TENSOR_F16, 0},
                {"qwen2", TENSOR_Q8_0, TENSOR_Q8_0, 0},   {"qwen3", TENSOR_BF16, TENSOR_Q4_1, 0},
                {"gemma3", TENSOR_Q8_0, TENSOR_Q4_0, 40}, {"gemma4", TENSOR_F32, TENSOR_Q8_0, 40},
                {"gemma4", TENSOR_Q4_1, TENSOR_Q8_0, 40}};

static void for_every_variant(void (*check)(const struct plan *plan))
{
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct random_model model;
        struct random_model_config config = random_model_default;
        config.architecture = variants[i].architecture;
        config.n_layers = 3;
        config.window = variants[i].window;
        config.matrix_type = variants[i].matrix_type;
        config.down_type = variants[i].down_type;
        config.mixed_types = true;
        config.biases = i == 2;
        config.n_per_layer = strcmp(config.architecture, "gemma4") == 0 ? 32 : 0;
        random_model_open(&model, &config);
        struct plan *plan = NULL;
        struct npu_error error = {0};
        if (plan_create(&plan, model.model, &limits, &error) != NPU_OK)
            fail_msg("%s: %s", config.architecture, error.message);
        check(plan);
        plan_destroy(plan);
        random_model_close(&model);
    }
}

static void barriers_stand_where_entries_conflict_and_nowhere_else(void **state)
{
    (void)state;
    for_every_variant(check_barriers);
}

static void everything_has_a_place_of_its_own(void **state)
{
    (void)state;
    for_every_variant(check_places);
}

static void every_op_is_computed(void **state)
{
    (void)state;
    for_every_variant(check_cover);
}

static void hidden_states_are_complete_before_the_head(void **state)
{
    (void)state;
    for_every_variant(check_head);
}

static void a_plan_depends_on_the_model_and_its_limits_alone(void **state)
{
    (void)state;
    for_every_variant(check_static);
}

static void weights_are_shared_out_over_segments(void **state)
{
    (void)state;
    struct random_model model;
    struct random_model_config config = random_model_default;
    struct plan *plan = NULL;
    struct npu_error error = {0};
    config.n_ff = 512;
    random_model_open(&model, &config);
    struct plan_limits small = limits;
    small.max_segment_bytes = 300000; /* of 0.9 MB, no matrix larger than 0.13 */
    assert_int_equal(plan_create(&plan, model.model, &small, &error), NPU_OK);
    assert_true(plan->n_segments > 2);
    for (int i = 0; i < plan->n_segments; i++)
        assert_true(plan->segment_bytes[i] <= small.max_segment_bytes);
    plan_destroy(plan);
    small.max_segment_bytes = 150000;
    assert_int_equal(plan_create(&plan, model.model, &small, &error), NPU_ERROR_DEVICE);
    small.max_segment_bytes = 100000;
    assert_int_equal(plan_create(&plan, model.model, &small, &error), NPU_ERROR_DEVICE);
    random_model_close(&model);
}

static void a_type_that_cannot_be_computed_is_named(void **state)
{
    (void)state;
    struct random_model model;
    struct plan *plan = NULL;
    struct npu_error error = {0};
    random_model_open(&model, &random_model_default);
    for (int i = 0; i < model.model->n_weights; i++) {
        if (strcmp(model.model->weights[i].name, "blk.1.ffn_up.weight") == 0)
            model.model->weights[i].type = 39; /* MXFP4 */
    }
    assert_int_equal(plan_create(&plan, model.model, &limits, &error), NPU_ERROR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "blk.1.ffn_up.weight"));
    assert_non_null(strstr(error.message, "MXFP4"));
    random_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_stand_where_entries_conflict_and_nowhere_else),
        cmocka_unit_test(everything_has_a_place_of_its_own),
        cmocka_unit_test(every_op_is_computed),
        cmocka_unit_test(hidden_states_are_complete_before_the_head),
        cmocka_unit_test(a_plan_depends_on_the_model_and_its_limits_alone),
        cmocka_unit_test(weights_are_shared_out_over_segments),
        cmocka_unit_test(a_type_that_cannot_be_computed_is_named),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
