/* The OpenCL C sources, embedded at build time. */
#ifndef KERNELS_SOURCES_H
#define KERNELS_SOURCES_H

struct kernel_source {
    const char *name; /* path below kernels/, such as "portable/matmul.cl" */
    const char *text; /* NUL-terminated */
};

/* Ends with a NULL name. */
extern const struct kernel_source kernel_sources[];

#endif
