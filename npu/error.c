#include "npu/error.h"

#include <stdio.h>
#include <string.h>

enum npu_status npu_error_set(struct npu_error *error, enum npu_status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    error->status = status;
    return status;
}

enum npu_status npu_error_prefix(struct npu_error *error, const char *format, ...)
{
    if (error == NULL)
        return NPU_ERROR_SYSTEM;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    int used = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (used >= 0 && (size_t)used < sizeof error->message)
        snprintf(error->message + used, sizeof error->message - (size_t)used, ": %s", old);
    return error->status;
}
