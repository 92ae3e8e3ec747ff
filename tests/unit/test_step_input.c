/* The step's input buffer: what kernels find there is what the step says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "npu/opencl/step_input.h"
#include "random_model.h"

enum {
    WINDOW = 100,
    CONTEXT = 1000,
    MAX_TABLES = 6
};

struct fixture {
    struct random_model model;
    struct plan *plan;
    int32_t *words;
    struct step_shape shape;
    struct step_row rows[EXECUTOR_MAX_ROWS];
    struct block_table tables[MAX_TABLES];
    int32_t blocks[MAX_TABLES][40];
    int n_rows, n_tables;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    struct random_model_config config = random_model_default;
    config.architecture = "gemma3";
    config.window = WINDOW;
    random_model_open(&fixture.model, &config);
    struct plan_limits limits = {.max_rows = EXECUTOR_MAX_ROWS,
                                 .max_returning = 16,
                                 .max_tables = MAX_TABLES,
                                 .max_context = CONTEXT,
                                 .max_segment_bytes = 1 << 30};
    assert_int_equal(plan_create(&fixture.plan, fixture.model.model, &limits, NULL), NPU_OK);
    fixture.words = malloc((size_t)fixture.plan->input_words * sizeof *fixture.words);
    assert_non_null(fixture.words);
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    free(fixture->words);
    plan_destroy(fixture->plan);
    random_model_close(&fixture->model);
    return 0;
}

/* n rows at positions first ... of a table of its own. */
static void add_run(struct fixture *fixture, int n, int first)
{
    int table = fixture->n_tables++;
    for (int i = 0; i < 40; i++)
        fixture->blocks[table][i] = 100 * table + i;
    fixture->tables[table] = (struct block_table){fixture->blocks[table], 32};
    for (int i = 0; i < n; i++)
        fixture->rows[fixture->n_rows++] = (struct step_row){
            .token = 10 * table + i, .position = first + i, .visible_end = first + i + 1, .table = (uint16_t)table};
}

static void fill_with_tiles_of(struct fixture *fixture, int tile_rows)
{
    struct step step = {fixture->rows, fixture->n_rows, fixture->tables, fixture->n_tables};
    memset(fixture->words, 0x5a, (size_t)fixture->plan->input_words * sizeof *fixture->words);
    step_input_fill(fixture->plan, &step, tile_rows, 77, fixture->words, &fixture->shape);
}

static void fill(struct fixture *fixture)
{
    fill_with_tiles_of(fixture, TILE_ROWS);
}

static void expect_tiles(const struct fixture *fixture, int set, int n, const int (*tiles)[2])
{
    assert_int_equal(fixture->words[INPUT_N_TILES + set], n);
    for (int i = 0; i < n; i++)
        assert_int_equal(fixture->words[INPUT_TILES + set * INPUT_MAX_ROWS + i], tiles[i][0] << 16 | tiles[i][1]);
}

static void rows_say_what_the_step_says(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, 2, 98);
    add_run(fixture, 1, 700);
    fixture->rows[1].returns = ROW_RETURN_BEST;
    fixture->rows[2].returns = ROW_RETURN_TOP_K;
    fixture->rows[2].top_k = 40;
    fill(fixture);
    const int32_t *words = fixture->words;
    assert_int_equal(words[INPUT_STAMP], 77);
    assert_int_equal(words[INPUT_DONE], fixture->plan->done_offset);
    assert_int_equal(words[INPUT_ARRIVED], 0);
    assert_int_equal(words[INPUT_ABANDONED], 0);
    assert_int_equal(words[INPUT_N_ROWS], 3);
    assert_int_equal(words[INPUT_N_ROWS + 1], 2);
    static const int begins[] = {0, 0, 700 + 1 - WINDOW};
    for (int i = 0; i < 3; i++) {
        const int32_t *row = words + INPUT_ROWS + i * INPUT_ROW_WORDS;
        const struct step_row *wanted = &fixture->rows[i];
        assert_int_equal(row[ROW_TOKEN], wanted->token);
        assert_int_equal(row[ROW_POSITION], wanted->position);
        assert_int_equal(row[ROW_BEGIN_FULL], 0);
        assert_int_equal(row[ROW_BEGIN_SLIDING], begins[i]);
        assert_int_equal(row[ROW_END], wanted->visible_end);
        assert_int_equal(row[ROW_RETURNS], wanted->returns | wanted->top_k << 8);
        assert_int_equal(row[ROW_EMBEDDING], -1);
        assert_memory_equal(words + row[ROW_TABLE], fixture->blocks[wanted->table], 32 * sizeof(int32_t));
        for (int r = 0; r < fixture->model.model->n_ropes; r++) {
            float angles[64];
            int dims = fixture->model.model->ropes[r].dims;
            rope_angles(&fixture->model.model->ropes[r], wanted->position, angles);
            assert_memory_equal(words + fixture->plan->rope_offsets[r] + i * dims, angles,
                                (size_t)dims * sizeof(float));
        }
    }
    assert_int_equal(fixture->shape.n_rows, 3);
    assert_int_equal(fixture->shape.n_returning, 2);
    assert_int_equal(fixture->shape.returning[0], 1);
    assert_int_equal(fixture->shape.returning[1], 2);
    assert_int_equal(words[INPUT_RETURNING], 1);
    assert_int_equal(words[INPUT_RETURNING + 1], 2);
}

static void the_window_begins_where_it_should(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, 4, WINDOW - 2);
    fill(fixture);
    static const int begins[] = {0, 0, 1, 2}; /* positions 98, 99, 100 and 101 see 100 at most, themselves included */
    for (int i = 0; i < 4; i++)
        assert_int_equal(fixture->words[INPUT_ROWS + i * INPUT_ROW_WORDS + ROW_BEGIN_SLIDING], begins[i]);
}

static void single_rows_of_many_tables_have_their_splits_as_units(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 5; i++)
        add_run(fixture, 1, 100 * i);
    fill(fixture);
    assert_int_equal(fixture->words[INPUT_SPLIT], 1);
    expect_tiles(fixture, 0, 5, (const int[][2]){{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}});
}

static void runs_are_cut_into_tiles_and_their_splits_walked(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, TILE_ROWS + 3, 5);
    add_run(fixture, 1, 0);
    add_run(fixture, 2 * TILE_ROWS, 40);
    fill(fixture);
    assert_int_equal(fixture->words[INPUT_SPLIT], 0);
    expect_tiles(fixture, 0, 5,
                 (const int[][2]){{0, TILE_ROWS},
                                  {TILE_ROWS, 3},
                                  {TILE_ROWS + 3, 1},
                                  {TILE_ROWS + 4, TILE_ROWS},
                                  {2 * TILE_ROWS + 4, TILE_ROWS}});
}

static void tiles_of_one_row_can_be_asked_for(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, 3, 5);
    fill_with_tiles_of(fixture, 1);
    assert_int_equal(fixture->words[INPUT_SPLIT], 1);
    expect_tiles(fixture, 0, 3, (const int[][2]){{0, 1}, {1, 1}, {2, 1}});
}

static void returning_rows_have_tiles_of_their_own(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, 5, 5);
    add_run(fixture, 3, 0);
    static const int returning[] = {1, 4, 5, 7};
    for (int i = 0; i < 4; i++)
        fixture->rows[returning[i]].returns = ROW_RETURN_LOGITS;
    fill(fixture);
    assert_int_equal(fixture->words[INPUT_N_ROWS + 1], 4);
    assert_memory_equal(fixture->words + INPUT_RETURNING, returning, sizeof returning);
    expect_tiles(fixture, 1, 2, (const int[][2]){{0, 2}, {2, 2}});
}

static void embeddings_take_places_in_order(void **state)
{
    struct fixture *fixture = *state;
    float vector[64] = {0};
    add_run(fixture, 4, 0);
    fixture->rows[1].embedding = fixture->rows[3].embedding = vector;
    fill(fixture);
    int first = fixture->plan->embeddings_offset, n_embd = fixture->model.model->n_embd;
    static const int places[] = {-1, 0, -1, 1};
    for (int i = 0; i < 4; i++)
        assert_int_equal(fixture->words[INPUT_ROWS + i * INPUT_ROW_WORDS + ROW_EMBEDDING],
                         places[i] < 0 ? -1 : first + places[i] * n_embd);
    assert_int_equal(fixture->shape.n_embeddings, 2);
}

static void a_table_longer_than_the_context_is_cut(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, 1, 10);
    add_run(fixture, 1, 10);
    fixture->tables[0].n_blocks = 40; /* the context has 32 */
    fill(fixture);
    int table_words = fixture->plan->table_words;
    assert_int_equal(table_words, 32);
    assert_memory_equal(fixture->words + INPUT_TABLES, fixture->blocks[0], (size_t)table_words * sizeof(int32_t));
    assert_memory_equal(fixture->words + INPUT_TABLES + table_words, fixture->blocks[1], 32 * sizeof(int32_t));
    assert_int_equal(fixture->shape.used_words, INPUT_TABLES + 2 * table_words);
    assert_true(fixture->shape.used_words <= fixture->plan->rope_offsets[0]);
}

static void the_largest_step_fits(void **state)
{
    struct fixture *fixture = *state;
    add_run(fixture, EXECUTOR_MAX_ROWS, CONTEXT - EXECUTOR_MAX_ROWS);
    for (int i = 0; i < 16; i++)
        fixture->rows[i * 16].returns = ROW_RETURN_HIDDEN;
    fixture->n_tables = MAX_TABLES;
    for (int i = 1; i < MAX_TABLES; i++)
        fixture->tables[i] = (struct block_table){fixture->blocks[i], 32};
    fill(fixture);
    assert_int_equal(fixture->words[INPUT_N_ROWS], EXECUTOR_MAX_ROWS);
    assert_int_equal(fixture->shape.n_returning, 16);
    assert_int_equal(fixture->words[INPUT_N_TILES], EXECUTOR_MAX_ROWS / TILE_ROWS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rows_say_what_the_step_says),
        TEST(the_window_begins_where_it_should),
        TEST(single_rows_of_many_tables_have_their_splits_as_units),
        TEST(runs_are_cut_into_tiles_and_their_splits_walked),
        TEST(tiles_of_one_row_can_be_asked_for),
        TEST(returning_rows_have_tiles_of_their_own),
        TEST(embeddings_take_places_in_order),
        TEST(a_table_longer_than_the_context_is_cut),
        TEST(the_largest_step_fits),
    };
    return cmocka_run_group_tests_name("step_input", tests, NULL, NULL);
}
