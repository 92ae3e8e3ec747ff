#include "daemon/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LANES = 8, /* sums and maxima are taken in so many interleaved parts: compilers make vectors of them */
    CHUNK = 256, /* weights that are summed together */
    WEIGHT_BUCKETS = 1017, /* of weights 0..1, by exponent and three bits of mantissa */
    WEIGHT_SHIFT = 20,
};

struct sampler_scratch {
    int32_t n_vocab;
    float *logits; /* adjusted */
    float *weights; /* exp((logit - max) / temperature) by token; 0: may not be drawn */
    double *chunk_sums; /* of CHUNK weights each */
    struct token_logit *candidates; /* n_vocab */
    double bucket_sums[WEIGHT_BUCKETS];
};

/* How often a token came: an entry of an open hash table. */
struct token_count {
    int32_t token; /* -1: free */
    int32_t n_output;
};

struct sampler {
    struct sampling sampling; /* bias: own copy */
    int32_t n_vocab;
    int32_t *banned;
    int n_banned;
    bool greedy, penalized, needs_logits;
    uint64_t random[4];
    struct token_count *counts;
    uint32_t counts_capacity, n_counts; /* capacity: a power of two or 0 */
};

/* --- creation ----------------------------------------------------------------------------------------------------- */

enum npu_status sampler_scratch_create(struct sampler_scratch **ret_scratch, int32_t n_vocab, struct npu_error *error)
{
    struct sampler_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch != NULL) {
        scratch->n_vocab = n_vocab;
        scratch->logits = malloc((size_t)n_vocab * sizeof *scratch->logits);
        scratch->weights = malloc((size_t)n_vocab * sizeof *scratch->weights);
        scratch->candidates = malloc((size_t)n_vocab * sizeof *scratch->candidates);
        scratch->chunk_sums = malloc(((size_t)n_vocab / CHUNK + 1) * sizeof *scratch->chunk_sums);
    }
    if (scratch == NULL || scratch->logits == NULL || scratch->weights == NULL || scratch->candidates == NULL ||
        scratch->chunk_sums == NULL) {
        sampler_scratch_destroy(scratch);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory to sample from %d tokens", n_vocab);
    }
    *ret_scratch = scratch;
    return NPU_OK;
}

void sampler_scratch_destroy(struct sampler_scratch *scratch)
{
    if (scratch == NULL)
        return;
    free(scratch->logits);
    free(scratch->weights);
    free(scratch->chunk_sums);
    free(scratch->candidates);
    free(scratch);
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t rotate_left(uint64_t x, int n)
{
    return (x << n) | (x >> (64 - n));
}

/* In [0, 1), 53 bits. */
static double draw(struct sampler *sampler)
{
    uint64_t *s = sampler->random;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

static void *copy_array(const void *from, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy != NULL && bytes > 0)
        memcpy(copy, from, bytes);
    return copy;
}

enum npu_status sampler_create(struct sampler **ret_sampler, const struct sampling *sampling,
                               const struct sampler_options *options, struct npu_error *error)
{
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a sampler");
    sampler->sampling = *sampling;
    sampler->sampling.bias = copy_array(sampling->bias, (size_t)sampling->n_bias * sizeof *sampling->bias);
    sampler->banned = copy_array(options->banned, (size_t)options->n_banned * sizeof *options->banned);
    sampler->n_banned = options->n_banned;
    sampler->n_vocab = options->n_vocab;
    sampler->needs_logits = options->needs_logits;
    sampler->greedy = !(sampling->temperature > 0) || sampling->top_k == 1;
    sampler->penalized =
        sampling->repeat_penalty != 1 || sampling->presence_penalty != 0 || sampling->frequency_penalty != 0;
    uint64_t seed = sampling->seed;
    for (int i = 0; i < 4; i++)
        sampler->random[i] = splitmix(&seed);
    if (sampler->sampling.bias == NULL || sampler->banned == NULL) {
        sampler_destroy(sampler);
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for a sampler");
    }
    *ret_sampler = sampler;
    return NPU_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    if (sampler == NULL)
        return;
    free(sampler->sampling.bias);
    free(sampler->banned);
    free(sampler->counts);
    free(sampler);
}

void sampler_row_return(const struct sampler *sampler, uint8_t *ret_returns, uint8_t *ret_top_k)
{
    int32_t k = sampler->greedy ? 1 : sampler->sampling.top_k;
    int32_t limit = sampler->n_vocab < EXECUTOR_MAX_TOP_K ? sampler->n_vocab : EXECUTOR_MAX_TOP_K;
    *ret_top_k = 0;
    *ret_returns = ROW_RETURN_LOGITS;
    if (sampler->needs_logits || sampler->penalized || sampler->sampling.n_bias > 0 || k < 1 ||
        k > limit - sampler->n_banned)
        return;
    if (sampler->greedy && sampler->n_banned == 0) {
        *ret_returns = ROW_RETURN_BEST;
        return;
    }
    *ret_returns = ROW_RETURN_TOP_K;
    *ret_top_k = (uint8_t)(k + sampler->n_banned); /* the banned ones may be among the best */
}

/* --- penalties ---------------------------------------------------------------------------------------------------- */

static struct token_count *count_of(struct sampler *sampler, int32_t token)
{
    uint32_t mask = sampler->counts_capacity - 1, i = ((uint32_t)token * 0x9e3779b1u) & mask;
    while (sampler->counts[i].token >= 0 && sampler->counts[i].token != token)
        i = (i + 1) & mask;
    return &sampler->counts[i];
}

static bool grow_counts(struct sampler *sampler)
{
    uint32_t old_capacity = sampler->counts_capacity, capacity = old_capacity > 0 ? old_capacity * 2 : 256;
    struct token_count *old = sampler->counts, *counts = malloc(capacity * sizeof *counts);
    if (counts == NULL)
        return false;
    for (uint32_t i = 0; i < capacity; i++)
        counts[i].token = -1;
    sampler->counts = counts;
    sampler->counts_capacity = capacity;
    for (uint32_t i = 0; i < old_capacity; i++)
        if (old[i].token >= 0)
            *count_of(sampler, old[i].token) = old[i];
    free(old);
    return true;
}

static bool count_token(struct sampler *sampler, int32_t token, int32_t n_output)
{
    if (sampler->n_counts * 2 >= sampler->counts_capacity && !grow_counts(sampler))
        return false;
    struct token_count *count = count_of(sampler, token);
    if (count->token < 0) {
        *count = (struct token_count){token, 0};
        sampler->n_counts++;
    }
    count->n_output += n_output;
    return true;
}

bool sampler_see_prompt(struct sampler *sampler, const int32_t *tokens, int32_t n_tokens)
{
    for (int32_t i = 0; sampler->sampling.repeat_penalty != 1 && i < n_tokens; i++)
        if (tokens[i] >= 0 && tokens[i] < sampler->n_vocab && !count_token(sampler, tokens[i], 0))
            return false;
    return true;
}

/* A copy of the raw logits with everything that changes them. */
static void adjust(struct sampler *sampler, float *logits, const float *raw)
{
    int32_t n_vocab = sampler->n_vocab; /* nothing that is written can change it: loops become vectors */
    for (int32_t token = 0; token < n_vocab; token++)
        logits[token] = isnan(raw[token]) ? -INFINITY : raw[token];
    const struct sampling *sampling = &sampler->sampling;
    for (uint32_t i = 0; i < sampler->counts_capacity; i++) {
        const struct token_count *count = &sampler->counts[i];
        if (count->token < 0)
            continue;
        float *logit = &logits[count->token];
        *logit = *logit > 0 ? *logit / sampling->repeat_penalty : *logit * sampling->repeat_penalty;
        if (count->n_output > 0)
            *logit -= (float)count->n_output * sampling->frequency_penalty + sampling->presence_penalty;
    }
    for (int i = 0; i < sampling->n_bias; i++)
        if (sampling->bias[i].token >= 0 && sampling->bias[i].token < sampler->n_vocab)
            logits[sampling->bias[i].token] += sampling->bias[i].bias;
    for (int i = 0; i < sampler->n_banned; i++)
        if (sampler->banned[i] >= 0 && sampler->banned[i] < sampler->n_vocab)
            logits[sampler->banned[i]] = -INFINITY;
}

static bool is_allowed(const struct token_mask *mask, int32_t token)
{
    return token < mask->n_tokens && (mask->bits[token / 32] >> (token % 32) & 1) != 0;
}

static void forbid(float *logits, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        logits[i] = -INFINITY;
}

static void apply_mask(float *logits, int32_t n_vocab, const struct token_mask *mask)
{
    int32_t n_masked = mask->n_tokens < n_vocab ? mask->n_tokens : n_vocab;
    for (int32_t from = 0; from < n_masked; from += 32) {
        uint32_t bits = mask->bits[from / 32];
        int32_t n = n_masked - from < 32 ? n_masked - from : 32;
        if (bits == 0)
            forbid(logits + from, n);
        for (int32_t i = 0; i < n && bits != 0 && bits != UINT32_MAX; i++)
            logits[from + i] = bits >> i & 1 ? logits[from + i] : -INFINITY;
    }
    forbid(logits + n_masked, n_vocab - n_masked);
}

static bool is_banned(const struct sampler *sampler, int32_t token)
{
    for (int i = 0; i < sampler->n_banned; i++)
        if (sampler->banned[i] == token)
            return true;
    return false;
}

/* --- selection ---------------------------------------------------------------------------------------------------- */

/* Larger logit first, then smaller id: a total order. */
static bool better(const struct token_logit *a, const struct token_logit *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static int compare_better(const void *a, const void *b)
{
    return better(a, b) ? -1 : 1; /* never equal: ids differ */
}

/* Moves heap[at] down. first_is_best: no child is better than its parent; else no child is worse. */
static void sift_down(struct token_logit *heap, int32_t n, int32_t at, bool first_is_best)
{
    struct token_logit moved = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && better(&heap[child + 1], &heap[child]) == first_is_best)
            child++;
        if (better(&heap[child], &moved) != first_is_best)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void make_heap(struct token_logit *heap, int32_t n, bool first_is_best)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i, first_is_best);
}

/* The k best of all logits, descending, to the front of the candidates. */
static int32_t select_top_k(struct sampler_scratch *scratch, const float *logits, int32_t n_vocab, int32_t k)
{
    struct token_logit *top = scratch->candidates;
    for (int32_t token = 0; token < k; token++)
        top[token] = (struct token_logit){token, logits[token]};
    make_heap(top, k, false);
    for (int32_t token = k; token < n_vocab; token++) {
        if (!(logits[token] > top[0].logit)) /* ids ascend: of equal ones the first stays */
            continue;
        top[0] = (struct token_logit){token, logits[token]};
        sift_down(top, k, 0, false);
    }
    qsort(top, (size_t)k, sizeof *top, compare_better);
    return k;
}

static float largest(const float *logits, int32_t n)
{
    float lanes[LANES];
    for (int i = 0; i < LANES; i++)
        lanes[i] = -INFINITY;
    int32_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] = logits[at + i] > lanes[i] ? logits[at + i] : lanes[i];
    for (; at < n; at++)
        lanes[0] = logits[at] > lanes[0] ? logits[at] : lanes[0];
    for (int i = 1; i < LANES; i++)
        lanes[0] = lanes[i] > lanes[0] ? lanes[i] : lanes[0];
    return lanes[0];
}

static int32_t best_token(const struct sampler *sampler, const float *logits, const struct token_mask *mask)
{
    float max = largest(logits, sampler->n_vocab);
    for (int32_t token = 0; token < sampler->n_vocab; token++)
        if (logits[token] == max &&
            (max > -INFINITY || (!is_banned(sampler, token) && (mask == NULL || is_allowed(mask, token)))))
            return token;
    return 0;
}

/* As best_token, of raw logits that nothing but the mask changes: in one pass, and only over what is allowed. Negative: none
 * has a logit above minus infinity. */
static int32_t best_allowed(const struct sampler *sampler, const float *raw, const struct token_mask *mask)
{
    int32_t n_words = (mask->n_tokens < sampler->n_vocab ? mask->n_tokens : sampler->n_vocab) / 32, best_word = -1;
    float max = -INFINITY;
    for (int32_t word = 0; word < n_words; word++) {
        uint32_t bits = mask->bits[word];
        float best = -INFINITY;
        if (bits == UINT32_MAX)
            best = largest(raw + 32 * word, 32);
        else
            for (; bits != 0; bits &= bits - 1) {
                float logit = raw[32 * word + __builtin_ctz(bits)];
                best = logit > best ? logit : best;
            }
        if (best > max) {
            max = best;
            best_word = word;
        }
    }
    int32_t best_of_all = -1;
    for (uint32_t bits = best_word >= 0 ? mask->bits[best_word] : 0; bits != 0 && best_of_all < 0; bits &= bits - 1)
        if (raw[32 * best_word + __builtin_ctz(bits)] == max)
            best_of_all = 32 * best_word + __builtin_ctz(bits);
    for (int32_t token = 32 * n_words; token < mask->n_tokens && token < sampler->n_vocab; token++)
        if (is_allowed(mask, token) && raw[token] > max) {
            max = raw[token];
            best_of_all = token;
        }
    return best_of_all;
}

/* exp(x) for x <= 0, to about 1e-7; 0 below -87 and for NaN. Bounds are taken on integers: around a comparison of floats,
 * which could trap, compilers keep the branch and loops do not become vectors. */
static inline float exp_of(float x)
{
    enum {
        MAGNITUDE = 0x7fffffff,
        BITS_OF_200 = 0x43480000,
    };
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= MAGNITUDE;
    bits = bits < BITS_OF_200 ? bits : BITS_OF_200;
    float bounded;
    memcpy(&bounded, &bits, sizeof bounded);
    bounded = -bounded;
    int32_t power = (int32_t)(bounded * 1.44269504f - 0.5f); /* to the nearest: conversion cuts towards zero */
    float r = bounded - (float)power * 0.693145752f; /* ln 2 in two parts, the first one of few bits */
    r -= (float)power * 1.42860677e-6f;
    float y = 1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
    int32_t exponent = power + 127 > 0 ? power + 127 : 0;
    bits = (int32_t)((uint32_t)exponent << 23);
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

static double sum_of(const float *weights, int32_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    int32_t at = 0;
    for (; at + LANES <= n; at += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] += (double)weights[at + i];
    for (; at < n; at++)
        sum += (double)weights[at];
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* May a candidate of this weight (1: the best one's) join n_kept others that have kept of the total? */
static bool keeps(const struct sampler *sampler, float weight, int32_t n_kept, double kept, double total)
{
    if (n_kept == 0)
        return true;
    return weight > 0 && weight >= sampler->sampling.min_p && kept < sampler->sampling.top_p * total;
}

/* One of n candidates, descending, after top_p and min_p. */
static int32_t draw_from_sorted(struct sampler *sampler, struct sampler_scratch *scratch, int32_t n)
{
    const struct token_logit *candidates = scratch->candidates;
    float *weights = scratch->weights;
    for (int32_t i = 0; i < n; i++)
        weights[i] = exp_of((candidates[i].logit - candidates[0].logit) / sampler->sampling.temperature);
    double total = sum_of(weights, n), kept = 0;
    int32_t n_kept = 0;
    for (; n_kept < n && keeps(sampler, weights[n_kept], n_kept, kept, total); n_kept++)
        kept += weights[n_kept];
    double target = draw(sampler) * kept;
    for (int32_t i = 0; i < n_kept - 1; i++) {
        target -= weights[i];
        if (target < 0)
            return candidates[i].token;
    }
    return candidates[n_kept - 1].token;
}

static uint32_t bucket_of(float weight)
{
    uint32_t bits;
    memcpy(&bits, &weight, sizeof bits);
    return bits >> WEIGHT_SHIFT;
}

/* Sets all weights to 0 but those of the smallest set of tokens that has top_p of the total. Only the tokens of one bucket,
 * where the set ends, are put in order. */
static void keep_nucleus(const struct sampler *sampler, struct sampler_scratch *scratch, double total)
{
    float *weights = scratch->weights;
    double wanted = sampler->sampling.top_p * total, kept = 0;
    memset(scratch->bucket_sums, 0, sizeof scratch->bucket_sums);
    for (int32_t token = 0; token < sampler->n_vocab; token++)
        scratch->bucket_sums[bucket_of(weights[token])] += weights[token];
    uint32_t last = WEIGHT_BUCKETS - 1;
    while (last > 0 && kept + scratch->bucket_sums[last] < wanted)
        kept += scratch->bucket_sums[last--];

    struct token_logit *heap = scratch->candidates; /* of weights */
    int32_t n = 0;
    for (int32_t token = 0; token < sampler->n_vocab; token++) {
        uint32_t bucket = bucket_of(weights[token]);
        if (bucket == last)
            heap[n++] = (struct token_logit){token, weights[token]};
        if (bucket <= last)
            weights[token] = 0;
    }
    make_heap(heap, n, true);
    while (n > 0 && (kept <= 0 || kept < wanted)) {
        weights[heap[0].token] = heap[0].logit;
        kept += heap[0].logit;
        heap[0] = heap[--n];
        sift_down(heap, n, 0, true);
    }
}

/* One of all tokens by their weights; negative if none has one. */
static int32_t draw_by_weight(struct sampler *sampler, struct sampler_scratch *scratch)
{
    const float *weights = scratch->weights;
    double total = 0;
    int32_t n_chunks = 0;
    for (int32_t at = 0; at < sampler->n_vocab; at += CHUNK) {
        int32_t n = sampler->n_vocab - at < CHUNK ? sampler->n_vocab - at : CHUNK;
        scratch->chunk_sums[n_chunks] = sum_of(weights + at, n);
        total += scratch->chunk_sums[n_chunks++];
    }
    double target = draw(sampler) * total;
    int32_t chunk = 0;
    while (chunk < n_chunks - 1 && target >= scratch->chunk_sums[chunk])
        target -= scratch->chunk_sums[chunk++];
    /* Rounding may carry the target past the end of its chunk, or past the last weight of all. Infinite logits have no
     * weight. */
    int32_t last = -1;
    for (int32_t token = chunk * CHUNK; token < sampler->n_vocab; token++) {
        if (!(weights[token] > 0))
            continue;
        last = token;
        target -= weights[token];
        if (target < 0)
            break;
    }
    return last;
}

/* Without top_k. */
static int32_t draw_from_all(struct sampler *sampler, struct sampler_scratch *scratch, float max)
{
    const float *logits = scratch->logits;
    float *weights = scratch->weights, least = sampler->sampling.min_p, temperature = sampler->sampling.temperature;
    int32_t n_vocab = sampler->n_vocab;
    for (int32_t token = 0; token < n_vocab; token++)
        weights[token] = exp_of((logits[token] - max) / temperature);
    if (sampler->sampling.top_p < 1)
        keep_nucleus(sampler, scratch, sum_of(weights, n_vocab));
    for (int32_t token = 0; least > 0 && token < n_vocab; token++)
        weights[token] = weights[token] >= least ? weights[token] : 0;
    return draw_by_weight(sampler, scratch);
}

static int32_t choose_from_logits(struct sampler *sampler, struct sampler_scratch *scratch, const float *raw,
                                  const struct token_mask *mask)
{
    float *logits = scratch->logits;
    bool only_masked = !sampler->penalized && sampler->sampling.n_bias == 0 && sampler->n_banned == 0;
    int32_t allowed = mask != NULL && sampler->greedy && only_masked ? best_allowed(sampler, raw, mask) : -1;
    if (allowed >= 0)
        return allowed;
    adjust(sampler, logits, raw);
    if (mask != NULL)
        apply_mask(logits, sampler->n_vocab, mask);
    int32_t best = best_token(sampler, logits, mask);
    if (sampler->greedy || logits[best] == -INFINITY)
        return best;
    if (sampler->sampling.top_k < 1 || sampler->sampling.top_k >= sampler->n_vocab) {
        int32_t drawn = draw_from_all(sampler, scratch, logits[best]);
        return drawn >= 0 ? drawn : best;
    }
    int32_t n = select_top_k(scratch, logits, sampler->n_vocab, sampler->sampling.top_k);
    return draw_from_sorted(sampler, scratch, n);
}

static int32_t choose_from_top(struct sampler *sampler, struct sampler_scratch *scratch,
                               const struct row_result *result)
{
    int32_t k = sampler->greedy ? 1 : sampler->sampling.top_k, n = 0;
    for (int i = 0; i < result->n_top && n < k; i++)
        if (!isnan(result->top[i].logit) && !is_banned(sampler, result->top[i].token))
            scratch->candidates[n++] = result->top[i];
    if (n == 0)
        return result->best.token;
    if (sampler->greedy || scratch->candidates[0].logit == -INFINITY)
        return scratch->candidates[0].token;
    return draw_from_sorted(sampler, scratch, n);
}

int32_t sampler_choose(struct sampler *sampler, struct sampler_scratch *scratch, const struct row_result *result,
                       const struct token_mask *mask)
{
    int32_t token;
    if (result->logits != NULL)
        token = choose_from_logits(sampler, scratch, result->logits, mask);
    else if (result->top != NULL)
        token = choose_from_top(sampler, scratch, result);
    else
        token = result->best.token;
    if (sampler->penalized && !count_token(sampler, token, 1))
        return -1;
    return token;
}

/* --- log-probabilities -------------------------------------------------------------------------------------------- */

static float at_least(double logprob)
{
    return logprob > SAMPLER_LEAST_LOGPROB ? (float)logprob : SAMPLER_LEAST_LOGPROB; /* NaN: the least */
}

float sampler_logprob(const float *logits, int32_t n_vocab, int32_t token, struct token_probability *top, int n_top)
{
    float max = largest(logits, n_vocab), weights[CHUNK];
    double sum = 0;
    for (int32_t at = 0; at < n_vocab; at += CHUNK) {
        int32_t n = n_vocab - at < CHUNK ? n_vocab - at : CHUNK;
        for (int32_t i = 0; i < n; i++)
            weights[i] = exp_of(logits[at + i] - max); /* of NaN: 0 */
        sum += sum_of(weights, n);
    }
    double log_sum = (double)max + log(sum);

    int n = 0;
    for (int32_t i = 0; i < n_vocab && n_top > 0; i++) {
        if (isnan(logits[i]) || (n == n_top && !(logits[i] > top[n - 1].logprob)))
            continue;
        int at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct token_probability){i, logits[i]};
    }
    for (; n < n_top; n++)
        top[n] = (struct token_probability){n, -INFINITY};
    for (int i = 0; i < n_top; i++)
        top[i].logprob = at_least(top[i].logprob - log_sum);
    return at_least(logits[token] - log_sum);
}
