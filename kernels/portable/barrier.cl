/* The barrier between the work-groups of one launch. */
#if ONE_LAUNCH
/* sync is the input buffer, whose barrier words the host zeroes for each step. *spins is what this worker may still wait in
 * this launch. Returns 0 when the barrier was given up, here or by another worker: every group then leaves, and the host
 * runs the step again one op a launch. */
static int meet(__global int *sync, int target, int *spins)
{
    __global volatile atomic_int *arrived = (__global volatile atomic_int *)(sync + INPUT_ARRIVED);
    __global volatile atomic_int *abandoned = (__global volatile atomic_int *)(sync + INPUT_ABANDONED);
    atomic_fetch_add_explicit(arrived, 1, memory_order_acq_rel, memory_scope_device);
    int left = *spins;
    while (atomic_load_explicit(arrived, memory_order_acquire, memory_scope_device) < target) {
        spin_pause();
        if (--left > 0 && (left & 1023) != 0)
            continue;
        if (left <= 0)
            atomic_store_explicit(abandoned, 1, memory_order_release, memory_scope_device);
        if (atomic_load_explicit(abandoned, memory_order_acquire, memory_scope_device))
            return 0;
    }
    *spins = left;
    return 1;
}
#endif
