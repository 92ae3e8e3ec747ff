#define prefetch_line(address) __builtin_prefetch(address, 0, 2)
/* How far ahead of the tile in work weights are asked for: a core's share of the memory's latency times its rate. */
#define PREFETCH_BYTES 4096
