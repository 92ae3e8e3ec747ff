/* Attention of row-heads (a query head of a row) over one KV head, in splits at fixed positions of 256. A split gives
 * (maximum m, sum l, weighted values o); splits are merged in ascending order:
 *   M = max(m1, m2); l = l1 exp(m1 - M) + l2 exp(m2 - M); o likewise; the result is o / l.
 * What a row-head computes depends on its own visible range alone, so rows may share K/V loads (four row-heads at a
 * time), splits may be units of their own (decode) or be walked one after the other (prefill): the bits are the same.
 *
 * The state of a row-head in the arena: o [head_size], m, l. There is one per (row, head) for splits that are walked, and
 * one per (row, head, split) for splits that are units. */
INLINE __global float *walked_state(const struct context *c, __global const struct op_entry *e, int row, int head)
{
    return c->arena + e->state + (size_t)(row * e->n_heads + head) * (e->head_size + 8);
}

INLINE __global float *split_state(const struct context *c, __global const struct op_entry *e, int row, int head,
                                          int split)
{
    return c->arena + e->scratch + (size_t)row * e->scratch_stride +
           (size_t)(head * e->splits + split) * (e->head_size + 8);
}

struct row_head {
    int row, head;
    int begin, end; /* visible positions */
};

/* One split of n row-heads (n at most 4, known when compiled) of one run and one KV head, into their states: stored where
 * that split is the row-head's first or a unit of its own, merged otherwise. */
INLINE void attend_split(const int n, const struct context *c, __global const struct op_entry *e,
                                const struct row_head *heads, int kv_head, int split, int walked)
{
    const int size = e->head_size;
    int first = split * SPLIT_TOKENS, last = first, begin = first + SPLIT_TOKENS;
    for (int r = 0; r < n; r++) {
        last = max(last, min(first + SPLIT_TOKENS, heads[r].end));
        begin = min(begin, max(first, heads[r].begin));
    }
    __global const int *table = c->input + row_words(c, e, heads[0].row)[ROW_TABLE];
    float scores[4][SPLIT_TOKENS];
    float query[MAX_HEAD_SIZE * 4];
    float8 maximum[4];
    for (int r = 0; r < n; r++) {
        __global const float *q = c->arena + e->in + (size_t)heads[r].row * e->in_stride + heads[r].head * size;
        for (int i = 0; i < size; i++)
            query[i * n + r] = q[i] * e->scale;
        maximum[r] = -INFINITY;
    }
    int first_block = begin / KV_TOKENS, end_block = (last + KV_TOKENS - 1) / KV_TOKENS;
    for (int b = first_block; b < end_block; b++) {
        __global const kv_element *keys = kv_block(c, table[b]) + e->kv_offset + kv_head * KV_TOKENS * size;
        /* On the way while these keys are multiplied: the same block's values and the next block's keys. */
        __global const kv_element *values = keys + e->kv_heads * KV_TOKENS * size;
        __global const kv_element *next_keys =
            kv_block(c, table[min(b + 1, end_block - 1)]) + e->kv_offset + kv_head * KV_TOKENS * size;
        for (int part = 0; part < 2; part++) {
            float8 low[4], high[4];
            __global const kv_element *k0 = keys + part * 16 * size, *k1 = k0 + 8 * size;
            for (int r = 0; r < n; r++)
                low[r] = high[r] = 0.0f;
            for (int i = 0; i < size; i++) {
                float8 a = kv_load8(i, k0), d = kv_load8(i, k1);
                prefetch_line(values + (part * size + i) * 16);
                prefetch_line(next_keys + (part * size + i) * 16);
#pragma unroll
                for (int r = 0; r < n; r++) {
                    float8 q = (float8)query[i * n + r];
                    low[r] = multiply_add(a, q, low[r]);
                    high[r] = multiply_add(d, q, high[r]);
                }
            }
            int position = b * KV_TOKENS + part * 16;
            int8 p = position + (int8)(0, 1, 2, 3, 4, 5, 6, 7);
            for (int r = 0; r < n; r++) {
                low[r] = select(low[r], (float8)-INFINITY, p < heads[r].begin | p >= heads[r].end);
                high[r] = select(high[r], (float8)-INFINITY, p + 8 < heads[r].begin | p + 8 >= heads[r].end);
                vstore8(low[r], 0, scores[r] + position - first);
                vstore8(high[r], 0, scores[r] + position - first + 8);
                maximum[r] = fmax(maximum[r], fmax(low[r], high[r]));
            }
        }
    }
    float m[4], l[4];
    for (int r = 0; r < n; r++) {
        m[r] = fmax(max8(maximum[r]), -FLT_MAX); /* finite, so that differences are never NaN */
        float8 total = 0.0f;
        /* From the row-head's own first block on: positions before it weigh nothing and must not be summed. */
        for (int i = first_block * KV_TOKENS - first; i < end_block * KV_TOKENS - first; i += 8) {
            float8 w = exp8(vload8(0, scores[r] + i) - m[r]);
            vstore8(w, 0, scores[r] + i);
            total = total + w;
        }
        l[r] = sum8(total);
    }
    float old_factor[4], new_factor[4];
    __global float *state[4];
    int fresh[4];
    for (int r = 0; r < n; r++) {
        state[r] = walked ? walked_state(c, e, heads[r].row, heads[r].head)
                          : split_state(c, e, heads[r].row, heads[r].head, split);
        fresh[r] = !walked || split == heads[r].begin / SPLIT_TOKENS;
        if (fresh[r]) {
            state[r][size] = m[r];
            state[r][size + 1] = l[r];
        } else {
            float old = state[r][size], both = fmax(old, m[r]);
            old_factor[r] = exp1(old - both);
            new_factor[r] = exp1(m[r] - both);
            state[r][size] = both;
            state[r][size + 1] = multiply_add(state[r][size + 1], old_factor[r], l[r] * new_factor[r]);
        }
    }
    for (int i = 0; i < size; i += 16) {
        int upper = i + 8 < size ? 8 : 0; /* where the head ends after 8 elements these are taken twice */
        float8 low[4], high[4];
        for (int r = 0; r < n; r++)
            low[r] = high[r] = 0.0f;
        for (int b = first_block; b < end_block; b++) {
            __global const kv_element *values =
                kv_block(c, table[b]) + e->kv_offset + (e->kv_heads + kv_head) * KV_TOKENS * size + i;
            int from = max(begin - b * KV_TOKENS, 0), to = min(last - b * KV_TOKENS, KV_TOKENS);
            const float *weights = &scores[0][b * KV_TOKENS - first];
            for (int p = from; p < to; p++) {
                float8 a = kv_load8(0, values + p * size), d = kv_load8(0, values + p * size + upper);
#pragma unroll
                for (int r = 0; r < n; r++) {
                    float8 w = (float8)weights[r * SPLIT_TOKENS + p];
                    low[r] = multiply_add(a, w, low[r]);
                    high[r] = multiply_add(d, w, high[r]);
                }
            }
        }
        for (int r = 0; r < n; r++) {
            __global float *o = state[r] + i;
            if (!fresh[r]) {
                low[r] = multiply_add(vload8(0, o), (float8)old_factor[r], low[r] * new_factor[r]);
                high[r] = multiply_add(vload8(0, o + upper), (float8)old_factor[r], high[r] * new_factor[r]);
            }
            vstore8(low[r], 0, o);
            vstore8(high[r], 0, o + upper);
        }
    }
}

INLINE void attend(const struct context *c, __global const struct op_entry *e, const struct row_head *heads, int n,
                          int kv_head, int split, int walked)
{
    switch (n) {
#if ROWS_PER_PASS == 4
    case 4:
        attend_split(4, c, e, heads, kv_head, split, walked);
        break;
    case 3:
        attend_split(3, c, e, heads, kv_head, split, walked);
        break;
    case 2:
        attend_split(2, c, e, heads, kv_head, split, walked);
        break;
#endif
    default:
        attend_split(1, c, e, heads, kv_head, split, walked);
        break;
    }
}

/* Units along the heads: a KV head with all its query heads, or (work-items with a unit each) a query head. */
INLINE int unit_heads(__global const struct op_entry *e)
{
    return ROWS_PER_PASS == 1 ? e->n_heads : e->kv_heads;
}

/* All row-heads of a tile: rows times the query heads of one group, one split. */
INLINE void attend_tile(const struct context *c, __global const struct op_entry *e, int first_row, int n_rows,
                               int group, int split, int walked)
{
    int per_unit = e->n_heads / unit_heads(e), kv_head = group / (unit_heads(e) / e->kv_heads);
    struct row_head heads[4];
    int n = 0;
    for (int row = first_row; row < first_row + n_rows; row++) {
        __global const int *words = row_words(c, e, row);
        int begin = words[e->flags & FLAG_SLIDING ? ROW_BEGIN_SLIDING : ROW_BEGIN_FULL], end = words[ROW_END];
        if (split < begin / SPLIT_TOKENS || split * SPLIT_TOKENS >= end)
            continue;
        for (int head = group * per_unit; head < (group + 1) * per_unit; head++) {
            heads[n].row = row;
            heads[n].head = head;
            heads[n].begin = begin;
            heads[n].end = end;
            if (++n == ROWS_PER_PASS) {
                attend(c, e, heads, n, kv_head, split, walked);
                n = 0;
            }
        }
    }
    if (n > 0)
        attend(c, e, heads, n, kv_head, split, walked);
}

static void op_attention(const struct context *c, __global const struct op_entry *e)
{
    int tiles = c->input[INPUT_N_TILES + e->row_set], split_units = c->input[INPUT_SPLIT + e->row_set];
    int splits = split_units ? e->splits : 1;
    __global const int *list = c->input + INPUT_TILES + e->row_set * INPUT_MAX_ROWS;
    int groups = unit_heads(e), units = tiles * groups * splits;
    for (int unit = c->worker; unit < units; unit += c->workers) {
        int tile = list[unit / (groups * splits)], group = unit / splits % groups;
        int first_row = tile >> 16, n_rows = tile & 0xffff;
        if (split_units) {
            attend_tile(c, e, first_row, n_rows, group, unit % splits, 0);
            continue;
        }
        int last = row_words(c, e, first_row + n_rows - 1)[ROW_END];
        for (int row = first_row; row < first_row + n_rows; row++)
            last = max(last, row_words(c, e, row)[ROW_END]);
        int begin = row_words(c, e, first_row)[e->flags & FLAG_SLIDING ? ROW_BEGIN_SLIDING : ROW_BEGIN_FULL];
        for (int split = begin / SPLIT_TOKENS; split * SPLIT_TOKENS < last; split++)
            attend_tile(c, e, first_row, n_rows, group, split, 1);
    }
}

static void op_attention_merge(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), size = e->head_size, split_units = c->input[INPUT_SPLIT + e->row_set];
    for (int unit = c->worker; unit < rows * e->n_heads; unit += c->workers) {
        int row = unit / e->n_heads, head = unit % e->n_heads;
        __global const int *words = row_words(c, e, row);
        __global float *out = c->arena + e->out + (size_t)row * e->out_stride + head * size;
        int split = words[e->flags & FLAG_SLIDING ? ROW_BEGIN_SLIDING : ROW_BEGIN_FULL] / SPLIT_TOKENS;
        int end = split_units ? (words[ROW_END] + SPLIT_TOKENS - 1) / SPLIT_TOKENS : split + 1;
        __global float *state = split_units ? split_state(c, e, row, head, split) : walked_state(c, e, row, head);
        float m = state[size], l = state[size + 1];
        for (split++; split < end; split++) {
            __global const float *next = split_state(c, e, row, head, split);
            float both = fmax(m, next[size]);
            float old_factor = exp1(m - both), new_factor = exp1(next[size] - both);
            m = both;
            l = multiply_add(l, old_factor, next[size + 1] * new_factor);
            for (int i = 0; i < size; i += 8)
                vstore8(multiply_add(vload8(0, state + i), (float8)old_factor, vload8(0, next + i) * new_factor), 0, state + i);
        }
        float inverse = 1.0f / l;
        for (int i = 0; i < size; i += 8)
            vstore8(vload8(0, state + i) * inverse, 0, out + i);
        if (e->flags & FLAG_QUANTIZE) {
            struct quantized_row q = quantized_at(c, e, row);
            for (int i = 0; i < size; i += 32)
                quantize_block(vload8(0, out + i), vload8(1, out + i), vload8(2, out + i), vload8(3, out + i), q,
                               (head * size + i) / 32);
        }
    }
}
