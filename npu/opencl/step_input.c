#include "npu/opencl/step_input.h"

#include <string.h>

/* Runs of rows of one table, cut into tiles. indices: the set's rows in the step, or NULL for all. */
static void fill_tiles(const struct step *step, const int *indices, int n, int set, int tile_rows, int32_t *words)
{
    int32_t *tiles = words + INPUT_TILES + set * INPUT_MAX_ROWS;
    int n_tiles = 0;
    bool single = true;
    for (int first = 0; first < n;) {
        int table = step->rows[indices ? indices[first] : first].table, end = first + 1;
        while (end < n && end - first < tile_rows && step->rows[indices ? indices[end] : end].table == table)
            end++;
        tiles[n_tiles++] = first << 16 | (end - first);
        single = single && end - first == 1;
        first = end;
    }
    words[INPUT_N_ROWS + set] = n;
    words[INPUT_N_TILES + set] = n_tiles;
    words[INPUT_SPLIT + set] = single && n_tiles <= SPLIT_ROWS;
}

void step_input_fill(const struct plan *plan, const struct step *step, int tile_rows, int32_t stamp, int32_t *words,
                     struct step_shape *shape)
{
    const struct model *model = plan->model;
    memset(words, 0, INPUT_ROWS * sizeof *words);
    shape->n_rows = step->n_rows;
    shape->n_returning = 0;
    shape->n_embeddings = 0;
    shape->needs_logits = false;
    words[INPUT_STAMP] = stamp;
    words[INPUT_DONE] = plan->done_offset;
    for (int i = 0; i < step->n_rows; i++) {
        const struct step_row *row = &step->rows[i];
        int32_t *to = words + INPUT_ROWS + i * INPUT_ROW_WORDS;
        int begin = model->window > 0 ? row->position + 1 - model->window : 0;
        to[ROW_TOKEN] = row->token;
        to[ROW_POSITION] = row->position;
        to[ROW_BEGIN_FULL] = 0;
        to[ROW_BEGIN_SLIDING] = begin > 0 ? begin : 0;
        to[ROW_END] = row->visible_end;
        to[ROW_TABLE] = INPUT_TABLES + row->table * plan->table_words;
        to[ROW_RETURNS] = row->returns | row->top_k << 8;
        to[ROW_EMBEDDING] = row->embedding ? plan->embeddings_offset + shape->n_embeddings++ * model->n_embd : NO_INDEX;
        if (row->returns != ROW_RETURN_NOTHING) {
            words[INPUT_RETURNING + shape->n_returning] = i;
            shape->returning[shape->n_returning++] = i;
            shape->needs_logits |= row->returns != ROW_RETURN_HIDDEN;
        }
        for (int r = 0; r < model->n_ropes; r++) {
            const struct rope *rope = &model->ropes[r];
            rope_angles(rope, row->position, (float *)(words + plan->rope_offsets[r]) + i * rope->dims);
        }
    }
    fill_tiles(step, NULL, step->n_rows, 0, tile_rows, words);
    fill_tiles(step, shape->returning, shape->n_returning, 1, tile_rows, words);
    for (int t = 0; t < step->n_tables; t++) {
        int n = step->tables[t].n_blocks < plan->table_words ? step->tables[t].n_blocks : plan->table_words;
        if (n > 0)
            memcpy(words + INPUT_TABLES + t * plan->table_words, step->tables[t].blocks, (size_t)n * sizeof *words);
    }
    shape->used_words = INPUT_TABLES + step->n_tables * plan->table_words;
}
