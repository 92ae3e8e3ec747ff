/* How much memory this process may still use. */
#ifndef NPU_HOST_MEMORY_H
#define NPU_HOST_MEMORY_H

#include <stdint.h>

/* Bytes: what the kernel calls available, or less where a control group that the process is in (version 1 or 2) leaves less.
 * UINT64_MAX: nothing is known. root stands before /proc and /sys ("" on a running system). Thread: any. */
uint64_t host_memory_available(const char *root);

#endif
