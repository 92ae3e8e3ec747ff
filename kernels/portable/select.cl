/* The best token or the top k of a returning row. First each chunk of the vocabulary gives its own, descending, equal
 * logits by ascending token; then the chunks are merged. A partial is [count] pairs of (logit, token). NaN counts as
 * -infinity. */
INLINE int wanted_count(__global const int *words)
{
    int kind = words[ROW_RETURNS] & 255;
    return kind == RETURNS_BEST ? 1 : kind == RETURNS_TOP_K ? words[ROW_RETURNS] >> 8 : 0;
}

static void op_select(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), chunks = e->splits;
    int begin = share_begin(c, rows * chunks), end = share_end(c, rows * chunks);
    for (int unit = begin; unit < end; unit++) {
        int row = unit / chunks, chunk = unit % chunks;
        int wanted = wanted_count(row_words(c, e, row));
        if (wanted == 0)
            continue;
        int first = chunk * SELECT_CHUNK, last = min(first + SELECT_CHUNK, e->n_in);
        __global const float *logits = c->arena + e->in + (size_t)row * e->in_stride;
        __global float *partial = c->arena + e->scratch + (size_t)row * e->scratch_stride + chunk * (2 * SELECT_MAX + 1);
        __global float *values = partial + 1;
        __global int *tokens = (__global int *)(partial + 1 + SELECT_MAX);
        int count = 0;
        for (int i = first; i < last; i++) {
            /* Once the list is full most logits are below its end: eight at a time show that. */
            while (count == wanted && i + 8 <= last && !any(vload8(0, logits + i) > values[count - 1]))
                i += 8;
            if (i >= last)
                break;
            float v = logits[i];
            if (count == wanted && !(v > values[count - 1]))
                continue;
            v = isnan(v) ? -INFINITY : v;
            int place = count < wanted ? count++ : count - 1;
            for (; place > 0 && values[place - 1] < v; place--) {
                values[place] = values[place - 1];
                tokens[place] = tokens[place - 1];
            }
            values[place] = v;
            tokens[place] = i;
        }
        *(__global int *)partial = count;
    }
}

static void op_select_merge(const struct context *c, __global const struct op_entry *e)
{
    int rows = row_count(c, e), chunks = e->splits;
    for (int row = c->worker; row < rows; row += c->workers) {
        int wanted = wanted_count(row_words(c, e, row));
        __global float *partials = c->arena + e->scratch + (size_t)row * e->scratch_stride;
        __global float *values = c->arena + e->out + (size_t)row * e->out_stride;
        __global int *tokens = (__global int *)(values + SELECT_MAX);
        /* A chunk's own words after its lists are its cursor. */
        __global int *cursors = (__global int *)(partials + (size_t)chunks * (2 * SELECT_MAX + 1));
        for (int chunk = 0; chunk < chunks; chunk++)
            cursors[chunk] = 0;
        for (int k = 0; k < wanted; k++) {
            int best = -1;
            float best_value = 0.0f;
            for (int chunk = 0; chunk < chunks; chunk++) {
                __global float *partial = partials + chunk * (2 * SELECT_MAX + 1);
                int cursor = cursors[chunk];
                if (cursor == *(__global int *)partial)
                    continue;
                float v = partial[1 + cursor];
                if (best < 0 || v > best_value) {
                    best = chunk;
                    best_value = v;
                }
            }
            values[k] = best < 0 ? -INFINITY : best_value;
            tokens[k] = best < 0 ? -1 : ((__global int *)partials)[best * (2 * SELECT_MAX + 1) + 1 + SELECT_MAX + cursors[best]++];
        }
    }
}
