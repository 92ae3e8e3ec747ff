/* Errors are values: a function that can fail returns an npu_status and fills a message that a user can act on.
 * Nothing below main exits or aborts because of input, a file, a driver or memory. */
#ifndef NPU_ERROR_H
#define NPU_ERROR_H

#include <stdarg.h>

enum npu_status {
    NPU_OK = 0,
    NPU_ERROR_INPUT,       /* bad file, option or argument: the message says what, where, and what would be right */
    NPU_ERROR_UNSUPPORTED, /* well formed, but not built here: the message names it */
    NPU_ERROR_MEMORY,      /* host or device memory */
    NPU_ERROR_DEVICE,      /* the driver failed or computed garbage */
    NPU_ERROR_SYSTEM,      /* the operating system refused (file, socket, thread) */
    NPU_ERROR_CANCELLED,   /* asked to stop */
};

struct npu_error {
    enum npu_status status;
    char message[512];
};

/* Fills error (may be NULL) with a formatted message and returns status, so that callers write
 * `return npu_error_set(error, NPU_ERROR_INPUT, "...")`. */
enum npu_status npu_error_set(struct npu_error *error, enum npu_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "prefix: " before the message that is already there (context added on the way up); returns error->status. */
enum npu_status npu_error_prefix(struct npu_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
