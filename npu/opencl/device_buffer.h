/* Device memory. On devices that share the host's memory a buffer lives in host pages (huge ones where the kernel gives
 * them) and is used in place; elsewhere it is the driver's. */
#ifndef NPU_OPENCL_DEVICE_BUFFER_H
#define NPU_OPENCL_DEVICE_BUFFER_H

#include "npu/opencl/device.h"

struct device_buffer {
    cl_mem memory;
    void *host; /* the pages behind it, or NULL */
    size_t bytes;
};

/* Zeroed where it lives in host pages (untouched pages cost nothing). what names it in messages. */
enum npu_status device_buffer_create(struct device_buffer *buffer, cl_context context,
                                     const struct device_profile *profile, size_t bytes, const char *what,
                                     struct npu_error *error);
void device_buffer_destroy(struct device_buffer *buffer);

/* Blocking copies. */
enum npu_status device_buffer_write(const struct device_buffer *buffer, cl_command_queue queue, size_t offset,
                                    const void *from, size_t bytes, struct npu_error *error);
enum npu_status device_buffer_read(const struct device_buffer *buffer, cl_command_queue queue, size_t offset, void *to,
                                   size_t bytes, struct npu_error *error);

#endif
