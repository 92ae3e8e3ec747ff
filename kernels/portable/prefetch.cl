/* Asks for the cache line at an address, where the driver's compiler can say that. */
#define prefetch_line(address)
