#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "daemon/sampler.h"

enum {
    N_VOCAB = 500,
    N_DRAWS = 1500
};

static float logits[N_VOCAB];
static struct sampler_scratch *scratch;

static struct sampling defaults(void)
{
    return (struct sampling){.temperature = 1, .top_p = 1, .repeat_penalty = 1, .seed = 42};
}

static struct sampler *new_sampler(struct sampling sampling, bool needs_logits)
{
    struct sampler_options options = {.n_vocab = N_VOCAB, .needs_logits = needs_logits};
    struct sampler *sampler;
    struct npu_error error;
    assert_int_equal(sampler_create(&sampler, &sampling, &options, &error), NPU_OK);
    return sampler;
}

static struct sampler *new_banning_sampler(struct sampling sampling, const int32_t *banned, int n_banned)
{
    struct sampler_options options = {.n_vocab = N_VOCAB, .banned = banned, .n_banned = n_banned};
    struct sampler *sampler;
    struct npu_error error;
    assert_int_equal(sampler_create(&sampler, &sampling, &options, &error), NPU_OK);
    return sampler;
}

static int compare(const void *a, const void *b)
{
    const struct token_logit *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->token - y->token;
}

/* The result of a row of the kind that the sampler asks for. */
static int32_t choose(struct sampler *sampler)
{
    static struct token_logit top[N_VOCAB];
    static float sorted_logits[N_VOCAB];
    uint8_t returns, top_k;
    sampler_row_return(sampler, &returns, &top_k);
    struct row_result result = {0};
    if (returns != ROW_RETURN_LOGITS && memcmp(sorted_logits, logits, sizeof logits) != 0) {
        for (int32_t i = 0; i < N_VOCAB; i++)
            top[i] = (struct token_logit){i, logits[i]};
        qsort(top, N_VOCAB, sizeof *top, compare);
        memcpy(sorted_logits, logits, sizeof logits);
    }
    if (returns == ROW_RETURN_LOGITS)
        result.logits = logits;
    else
        result.best = top[0];
    if (returns == ROW_RETURN_TOP_K) {
        assert_in_range(top_k, 1, EXECUTOR_MAX_TOP_K);
        result.top = top;
        result.n_top = top_k;
    }
    int32_t token = sampler_choose(sampler, scratch, &result, NULL);
    assert_in_range(token, 0, N_VOCAB - 1);
    return token;
}

static enum row_return returns_of(struct sampling sampling, int *ret_top_k)
{
    struct sampler *sampler = new_sampler(sampling, false);
    uint8_t returns, top_k;
    sampler_row_return(sampler, &returns, &top_k);
    sampler_destroy(sampler);
    *ret_top_k = top_k;
    return returns;
}

static uint64_t random_state;

static float random_logit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(random_state >> 40) / (float)(1 << 24) * 10 - 5;
}

static void random_logits(uint64_t seed)
{
    random_state = seed;
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = random_logit();
}

static void test_only_what_is_needed_is_read_back(void **state)
{
    (void)state;
    int k;
    struct sampling sampling = defaults();
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_LOGITS);
    sampling.temperature = 0;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_BEST);
    sampling.top_p = 0.5f;
    sampling.top_k = 40;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_BEST);
    sampling.temperature = 0.7f;
    sampling.min_p = 0.05f;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_TOP_K);
    assert_int_equal(k, 40);
    sampling.top_k = EXECUTOR_MAX_TOP_K;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_TOP_K);
    sampling.top_k++;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_LOGITS);
    sampling.top_k = 40;
    sampling.presence_penalty = 0.1f;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_LOGITS);
    sampling.presence_penalty = 0;
    struct logit_bias bias = {3, 1};
    sampling.bias = &bias;
    sampling.n_bias = 1;
    assert_int_equal(returns_of(sampling, &k), ROW_RETURN_LOGITS);
}

static void test_greedy_takes_the_best_and_the_smallest_id_of_equal_ones(void **state)
{
    (void)state;
    struct sampling sampling = defaults();
    sampling.temperature = 0;
    random_logits(1);
    logits[400] = logits[300] = logits[301] = 9;
    for (int needs_logits = 0; needs_logits < 2; needs_logits++) {
        struct sampler *sampler = new_sampler(sampling, needs_logits);
        assert_int_equal(choose(sampler), 300);
        sampler_destroy(sampler);
    }
}

static void test_banned_tokens_are_never_chosen(void **state)
{
    (void)state;
    static const int32_t banned[] = {5, 6, 7};
    struct sampling sampling = defaults();
    random_logits(2);
    logits[5] = logits[6] = logits[7] = 50;
    logits[100] = 20;
    sampling.temperature = 0;
    struct sampler *sampler = new_banning_sampler(sampling, banned, 3);
    uint8_t returns, top_k;
    sampler_row_return(sampler, &returns, &top_k);
    assert_int_equal(returns, ROW_RETURN_TOP_K);
    assert_int_equal(top_k, 4);
    assert_int_equal(choose(sampler), 100);
    sampler_destroy(sampler);
    static const int ks[] = {0, 1, 3, 200};
    for (int i = 0; i < 4; i++) {
        sampling.temperature = 2;
        sampling.top_k = ks[i];
        sampler = new_banning_sampler(sampling, banned, 3);
        for (int draw = 0; draw < 500; draw++) {
            int32_t token = choose(sampler);
            assert_true(token < 5 || token > 7);
        }
        sampler_destroy(sampler);
    }
}

static void test_the_same_seed_gives_the_same_tokens_and_another_one_others(void **state)
{
    (void)state;
    static const int ks[] = {0, 20, 300};
    for (int i = 0; i < 3; i++) {
        struct sampling sampling = defaults();
        sampling.top_k = ks[i];
        struct sampler *a = new_sampler(sampling, false), *b = new_sampler(sampling, false);
        sampling.seed++;
        struct sampler *c = new_sampler(sampling, false);
        int same = 0;
        for (int draw = 0; draw < 200; draw++) {
            random_logits((uint64_t)draw);
            int32_t token = choose(a);
            assert_int_equal(choose(b), token);
            same += choose(c) == token;
        }
        assert_true(same < 100);
        sampler_destroy(a);
        sampler_destroy(b);
        sampler_destroy(c);
    }
}

static void test_asking_for_logprobs_does_not_change_the_text(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int top_k;
    } cases[] = {{0, 1, 0, 0}, {1, 1, 0, 40}, {0.7f, 0.9f, 0, 40}, {1.5f, 0.95f, 0.1f, 128}, {1, 1, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampling sampling = defaults();
        sampling.temperature = cases[i].temperature;
        sampling.top_p = cases[i].top_p;
        sampling.min_p = cases[i].min_p;
        sampling.top_k = cases[i].top_k;
        struct sampler *lean = new_sampler(sampling, false), *full = new_sampler(sampling, true);
        for (int draw = 0; draw < 300; draw++) {
            random_logits((uint64_t)draw);
            logits[17] = logits[16];
            assert_int_equal(choose(lean), choose(full));
        }
        sampler_destroy(lean);
        sampler_destroy(full);
    }
}

/* The distribution that the parameters describe, computed the obvious way. */
static void expected_distribution(const struct sampling *sampling, double *p)
{
    static struct token_logit sorted[N_VOCAB];
    for (int32_t i = 0; i < N_VOCAB; i++)
        sorted[i] = (struct token_logit){i, logits[i]};
    qsort(sorted, N_VOCAB, sizeof *sorted, compare);
    int n = sampling->top_k > 0 && sampling->top_k < N_VOCAB ? sampling->top_k : N_VOCAB;
    double total = 0, kept = 0;
    for (int i = 0; i < n; i++)
        total += exp(((double)sorted[i].logit - (double)sorted[0].logit) / (double)sampling->temperature);
    memset(p, 0, N_VOCAB * sizeof *p);
    int n_kept = 0;
    for (; n_kept < n && (n_kept == 0 || kept < (double)sampling->top_p * total); n_kept++) {
        double w = exp(((double)sorted[n_kept].logit - (double)sorted[0].logit) / (double)sampling->temperature);
        if (n_kept > 0 && w < (double)sampling->min_p)
            break;
        p[sorted[n_kept].token] = w;
        kept += w;
    }
    for (int i = 0; i < N_VOCAB; i++)
        p[i] /= kept;
}

/* Pearson's statistic over bins with at least 8 expected draws; the rest is one bin. */
static void check_distribution(struct sampling sampling, bool needs_logits)
{
    static double p[N_VOCAB];
    static int seen[N_VOCAB];
    memset(seen, 0, sizeof seen);
    expected_distribution(&sampling, p);
    struct sampler *sampler = new_sampler(sampling, needs_logits);
    for (int i = 0; i < N_DRAWS; i++)
        seen[choose(sampler)]++;
    sampler_destroy(sampler);
    double statistic = 0, rest_expected = 0, rest_seen = 0;
    int bins = 0;
    for (int i = 0; i < N_VOCAB; i++) {
        if (p[i] == 0)
            assert_int_equal(seen[i], 0);
        double expected = p[i] * N_DRAWS;
        if (expected < 8) {
            rest_expected += expected;
            rest_seen += seen[i];
            continue;
        }
        statistic += (seen[i] - expected) * (seen[i] - expected) / expected;
        bins++;
    }
    if (rest_expected >= 8) {
        statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
        bins++;
    }
    /* Mean bins - 1, variance 2 (bins - 1): five deviations. */
    double free = bins > 1 ? bins - 1 : 1;
    assert_true(statistic <= free + 5 * sqrt(2 * free) + 1);
}

static void test_draws_follow_the_distribution_of_every_combination(void **state)
{
    (void)state;
    static const float temperatures[] = {0.5f, 1, 1.7f}, top_ps[] = {1, 0.9f, 0.3f}, min_ps[] = {0, 0.2f};
    static const int top_ks[] = {0, 5, 60, 200};
    random_logits(3);
    logits[9] = logits[10] = logits[11] = 6;
    for (int t = 0; t < 3; t++)
        for (int p = 0; p < 3; p++)
            for (int m = 0; m < 2; m++)
                for (int k = 0; k < 4; k++) {
                    struct sampling sampling = defaults();
                    sampling.temperature = temperatures[t];
                    sampling.top_p = top_ps[p];
                    sampling.min_p = min_ps[m];
                    sampling.top_k = top_ks[k];
                    check_distribution(sampling, false);
                }
}

static void test_top_p_keeps_the_token_that_passes_it(void **state)
{
    (void)state;
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = -INFINITY;
    logits[10] = logf(0.5f);
    logits[20] = logf(0.3f);
    logits[30] = logf(0.2f);
    struct sampling sampling = defaults();
    sampling.top_p = 0.6f;
    struct sampler *sampler = new_sampler(sampling, false);
    int seen[3] = {0};
    for (int i = 0; i < 1000; i++) {
        int32_t token = choose(sampler);
        assert_true(token == 10 || token == 20);
        seen[token / 10 - 1]++;
    }
    assert_in_range(seen[0], 560, 690);
    sampler_destroy(sampler);
    sampling.top_p = 1e-9f;
    sampler = new_sampler(sampling, false);
    for (int i = 0; i < 100; i++)
        assert_int_equal(choose(sampler), 10);
    sampler_destroy(sampler);
}

static void test_penalties_count_the_output_and_the_prompt_as_they_should(void **state)
{
    (void)state;
    for (int i = 0; i < N_VOCAB; i++)
        logits[i] = -10;
    logits[1] = 4;
    logits[2] = 3;
    logits[3] = 2;
    struct sampling sampling = defaults();
    sampling.temperature = 0;
    sampling.presence_penalty = 1.5f;
    struct sampler *sampler = new_sampler(sampling, false);
    assert_true(sampler_see_prompt(sampler, (const int32_t[]){1, 2, 3}, 3)); /* does not count */
    assert_int_equal(choose(sampler), 1); /* 4 */
    assert_int_equal(choose(sampler), 2); /* 2.5 3 2 */
    assert_int_equal(choose(sampler), 1); /* 2.5 1.5 2 */
    assert_int_equal(choose(sampler), 1); /* once is enough */
    sampler_destroy(sampler);

    sampling.presence_penalty = 0;
    sampling.frequency_penalty = 0.6f;
    sampler = new_sampler(sampling, false);
    static const int32_t expected[] = {1, 1, 2, 1, 2, 1, 2, 3};
    for (int i = 0; i < 5; i++)
        assert_int_equal(choose(sampler), expected[i]);
    sampler_destroy(sampler);

    sampling.frequency_penalty = 0;
    sampling.repeat_penalty = 2;
    sampler = new_sampler(sampling, false);
    assert_true(sampler_see_prompt(sampler, (const int32_t[]){1}, 1)); /* counts: 2 3 2 */
    assert_int_equal(choose(sampler), 2); /* 2 1.5 2 */
    assert_int_equal(choose(sampler), 1);
    sampler_destroy(sampler);

    logits[1] = logits[2] = logits[3] = -1; /* negative ones go down, too */
    sampler = new_sampler(sampling, false);
    assert_true(sampler_see_prompt(sampler, (const int32_t[]){1, 2}, 2));
    assert_int_equal(choose(sampler), 3);
    sampler_destroy(sampler);
}

static void test_bias_moves_logits(void **state)
{
    (void)state;
    random_logits(4);
    struct sampling sampling = defaults();
    struct logit_bias bias[] = {{123, 100}, {5, -100}, {-1, 100}, {N_VOCAB, 100}};
    sampling.bias = bias;
    sampling.n_bias = 4;
    struct sampler *sampler = new_sampler(sampling, false);
    for (int i = 0; i < 50; i++)
        assert_int_equal(choose(sampler), 123);
    sampler_destroy(sampler);
}

static void test_a_long_output_is_counted_without_end(void **state)
{
    (void)state;
    struct sampling sampling = defaults();
    sampling.frequency_penalty = 0.01f;
    sampling.temperature = 3;
    struct sampler *sampler = new_sampler(sampling, false);
    for (int i = 0; i < 3000; i++) {
        random_logits((uint64_t)i);
        choose(sampler);
    }
    sampler_destroy(sampler);
}

static void test_garbage_logits_give_some_token_the_same_each_time(void **state)
{
    (void)state;
    static const float values[] = {NAN, -INFINITY, INFINITY};
    static const int ks[] = {0, 1, 10, 200};
    for (int v = 0; v < 3; v++)
        for (int k = 0; k < 4; k++)
            for (int p = 0; p < 2; p++) {
                for (int i = 0; i < N_VOCAB; i++)
                    logits[i] = values[v];
                struct sampling sampling = defaults();
                sampling.top_k = ks[k];
                sampling.top_p = p ? 0.5f : 1;
                struct sampler *a = new_sampler(sampling, true), *b = new_sampler(sampling, true);
                for (int i = 0; i < 20; i++)
                    assert_int_equal(choose(a), choose(b));
                logits[77] = 1;
                if (v < 2)
                    assert_int_equal(choose(a), 77);
                sampler_destroy(a);
                sampler_destroy(b);
            }
}

static void test_logprobs_are_the_log_softmax_of_the_raw_logits(void **state)
{
    (void)state;
    random_logits(5);
    logits[40] = logits[41] = 7;
    double total = 0;
    for (int i = 0; i < N_VOCAB; i++)
        total += exp((double)sampler_logprob(logits, N_VOCAB, i, NULL, 0));
    assert_true(fabs(total - 1) < 1e-4);
    struct token_probability top[20];
    float logprob = sampler_logprob(logits, N_VOCAB, 450, top, 20);
    double sum = 0;
    for (int i = 0; i < N_VOCAB; i++)
        sum += exp((double)logits[i]);
    assert_true(fabs((double)logprob - ((double)logits[450] - log(sum))) < 1e-5);
    assert_int_equal(top[0].token, 40);
    assert_int_equal(top[1].token, 41);
    for (int i = 1; i < 20; i++)
        assert_true(top[i].logprob <= top[i - 1].logprob);
    assert_true(top[0].logprob == sampler_logprob(logits, N_VOCAB, 40, NULL, 0));
    int larger = 0;
    for (int i = 0; i < N_VOCAB; i++)
        larger += logits[i] > logits[top[19].token];
    assert_true(larger <= 19);
}

static void test_logprobs_of_garbage_are_finite(void **state)
{
    (void)state;
    static const float values[] = {NAN, -INFINITY, INFINITY};
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < N_VOCAB; i++)
            logits[i] = values[v];
        struct token_probability top[5];
        assert_true(isfinite(sampler_logprob(logits, N_VOCAB, 3, top, 5)));
        for (int i = 0; i < 5; i++)
            assert_true(isfinite(top[i].logprob));
    }
    random_logits(6);
    logits[3] = -INFINITY;
    assert_true(sampler_logprob(logits, N_VOCAB, 3, NULL, 0) == SAMPLER_LEAST_LOGPROB);
}

/* ---- masks ---- */

static uint32_t mask_bits[(N_VOCAB + 31) / 32];

static struct token_mask mask_of(int32_t n_tokens, const int32_t *allowed, int n_allowed)
{
    memset(mask_bits, 0, sizeof mask_bits);
    for (int i = 0; i < n_allowed; i++)
        mask_bits[allowed[i] / 32] |= UINT32_C(1) << (allowed[i] % 32);
    return (struct token_mask){mask_bits, n_tokens};
}

static int32_t choose_masked(struct sampler *sampler, const struct token_mask *mask)
{
    struct row_result result = {.logits = logits};
    return sampler_choose(sampler, scratch, &result, mask);
}

static void test_a_mask_leaves_the_best_of_what_it_allows(void **state)
{
    (void)state;
    struct sampling sampling = defaults();
    sampling.temperature = 0;
    for (int top_k = 0; top_k < 4; top_k++) {
        sampling.top_k = top_k;
        struct sampler *sampler = new_sampler(sampling, true);
        for (uint64_t seed = 1; seed < 20; seed++) {
            random_logits(seed);
            int32_t allowed[] = {31, 32, 77, 300 + (int32_t)seed, N_VOCAB - 1}, best = allowed[0];
            struct token_mask mask = mask_of(N_VOCAB, allowed, 5);
            for (int i = 0; i < 5; i++)
                best = logits[allowed[i]] > logits[best] ? allowed[i] : best;
            assert_int_equal(choose_masked(sampler, &mask), best);
            for (int32_t i = 0; i < N_VOCAB; i++) /* most are allowed, but for every third */
                mask_bits[i / 32] |= (i % 3 != 0 ? UINT32_C(1) : 0) << (i % 32);
            for (int32_t i = 0; i < N_VOCAB; i++)
                best = i % 3 != 0 && logits[i] > logits[best] ? i : best;
            assert_int_equal(choose_masked(sampler, &mask), best);
        }
        sampler_destroy(sampler);
    }
}

static void test_only_what_a_mask_allows_is_drawn(void **state)
{
    (void)state;
    const struct {
        float top_p, min_p;
        int32_t top_k;
    } kinds[] = {{1, 0, 0}, {0.5f, 0, 0}, {1, 0.3f, 0}, {1, 0, 5}, {0.9f, 0.1f, 40}, {1, 0, 128}, {1, 0, 1}};
    int32_t allowed[] = {3, 64, 65, 490};
    int n_seen[N_VOCAB] = {0};
    random_logits(7);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        struct sampling sampling = defaults();
        sampling.temperature = 1.5f;
        sampling.top_p = kinds[kind].top_p;
        sampling.min_p = kinds[kind].min_p;
        sampling.top_k = kinds[kind].top_k;
        struct sampler *sampler = new_sampler(sampling, true);
        struct token_mask mask = mask_of(N_VOCAB, allowed, 4);
        for (int i = 0; i < N_DRAWS; i++)
            n_seen[choose_masked(sampler, &mask)]++;
        sampler_destroy(sampler);
    }
    int n_allowed = 0;
    for (int i = 0; i < 4; i++) {
        assert_true(n_seen[allowed[i]] > 0);
        n_allowed += n_seen[allowed[i]];
    }
    assert_int_equal(n_allowed, N_DRAWS * (int)(sizeof kinds / sizeof *kinds));
}

static void test_a_mask_is_applied_after_bias_and_penalties(void **state)
{
    (void)state;
    struct logit_bias bias[] = {{9, 100}, {200, -100}};
    struct sampling sampling = defaults();
    sampling.bias = bias;
    sampling.n_bias = 2;
    sampling.repeat_penalty = 5;
    sampling.presence_penalty = 2;
    random_logits(3);
    for (int greedy = 0; greedy < 2; greedy++) {
        sampling.temperature = greedy ? 0 : 1;
        struct sampler *sampler = new_sampler(sampling, true);
        int32_t allowed[] = {200};
        struct token_mask mask = mask_of(N_VOCAB, allowed, 1);
        for (int i = 0; i < 20; i++)
            assert_int_equal(choose_masked(sampler, &mask), 200);
        sampler_destroy(sampler);
    }
}

static void test_what_no_logit_speaks_for_comes_if_nothing_else_may(void **state)
{
    (void)state;
    int32_t banned[] = {40, 41};
    int32_t allowed[] = {40, 41, 42, 43};
    struct sampling sampling = defaults();
    for (int greedy = 0; greedy < 2; greedy++) {
        sampling.temperature = greedy ? 0 : 1;
        struct sampler *sampler = new_banning_sampler(sampling, banned, 2);
        random_logits(5);
        for (int i = 40; i < 44; i++)
            logits[i] = i % 2 ? NAN : -INFINITY;
        struct token_mask mask = mask_of(N_VOCAB, allowed, 4);
        assert_int_equal(choose_masked(sampler, &mask), 42);
        sampler_destroy(sampler);
    }
}

static void test_tokens_past_a_mask_never_come(void **state)
{
    (void)state;
    struct sampling sampling = defaults();
    struct sampler *sampler = new_sampler(sampling, true);
    int32_t allowed[N_VOCAB];
    for (int32_t i = 0; i < N_VOCAB; i++) {
        allowed[i] = i;
        logits[i] = i >= 45 ? 50 : 0;
    }
    struct token_mask mask = mask_of(45, allowed, N_VOCAB);
    for (int i = 0; i < 200; i++)
        assert_in_range(choose_masked(sampler, &mask), 0, 44);
    sampler_destroy(sampler);
}

static void test_a_mask_of_all_changes_nothing(void **state)
{
    (void)state;
    struct sampling sampling = defaults();
    struct sampler *plain = new_sampler(sampling, true), *masked = new_sampler(sampling, true);
    int32_t allowed[N_VOCAB];
    for (int32_t i = 0; i < N_VOCAB; i++)
        allowed[i] = i;
    struct token_mask mask = mask_of(N_VOCAB, allowed, N_VOCAB);
    random_logits(11);
    for (int i = 0; i < 200; i++)
        assert_int_equal(choose_masked(masked, &mask), choose_masked(plain, NULL));
    sampler_destroy(plain);
    sampler_destroy(masked);
}

static int set_up(void **state)
{
    (void)state;
    return sampler_scratch_create(&scratch, N_VOCAB, NULL) == NPU_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    sampler_scratch_destroy(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_needed_is_read_back),
        cmocka_unit_test(test_greedy_takes_the_best_and_the_smallest_id_of_equal_ones),
        cmocka_unit_test(test_banned_tokens_are_never_chosen),
        cmocka_unit_test(test_the_same_seed_gives_the_same_tokens_and_another_one_others),
        cmocka_unit_test(test_asking_for_logprobs_does_not_change_the_text),
        cmocka_unit_test(test_draws_follow_the_distribution_of_every_combination),
        cmocka_unit_test(test_top_p_keeps_the_token_that_passes_it),
        cmocka_unit_test(test_penalties_count_the_output_and_the_prompt_as_they_should),
        cmocka_unit_test(test_bias_moves_logits),
        cmocka_unit_test(test_a_long_output_is_counted_without_end),
        cmocka_unit_test(test_garbage_logits_give_some_token_the_same_each_time),
        cmocka_unit_test(test_logprobs_are_the_log_softmax_of_the_raw_logits),
        cmocka_unit_test(test_logprobs_of_garbage_are_finite),
        cmocka_unit_test(test_a_mask_leaves_the_best_of_what_it_allows),
        cmocka_unit_test(test_only_what_a_mask_allows_is_drawn),
        cmocka_unit_test(test_a_mask_is_applied_after_bias_and_penalties),
        cmocka_unit_test(test_what_no_logit_speaks_for_comes_if_nothing_else_may),
        cmocka_unit_test(test_tokens_past_a_mask_never_come),
        cmocka_unit_test(test_a_mask_of_all_changes_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
