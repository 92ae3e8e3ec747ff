/* Start-up probe of the barrier between work-groups: do all groups run together, is data visible across it, how long does
 * it take, and how many spins make a second. */
#if ONE_LAUNCH
/* Each round every worker writes a word, meets the others, and checks theirs. result[worker] counts the
 * rounds that held, and is far below 0 when a word of another was not seen. */
__kernel void probe_barrier(__global int *sync, int spin_limit, int rounds, __global int *words,
                            __global int *result)
{
    int worker = (int)get_global_id(0), workers = (int)get_global_size(0), met = 0, good = 0, spins = spin_limit;
    for (int round = 1; round <= rounds; round++) {
        words[worker * 16] = round * workers + worker;
        if (!meet(sync, ++met * workers, &spins))
            break;
        int right = 1;
        for (int i = 0; i < workers; i++)
            right &= words[i * 16] == round * workers + i;
        good = right ? good + 1 : -(1 << 20);
        if (!meet(sync, ++met * workers, &spins))
            break;
    }
    result[worker] = good;
}

/* Spins that often for an arrival that never comes. */
__kernel void probe_spin(__global int *sync, int spins, __global int *result)
{
    result[0] = meet(sync, 1 << 30, &spins);
}
#endif
