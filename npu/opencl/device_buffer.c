#include "npu/opencl/device_buffer.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    HUGE_PAGE = 2 << 20
};

enum npu_status device_buffer_create(struct device_buffer *buffer, cl_context context,
                                     const struct device_profile *profile, size_t bytes, const char *what,
                                     struct npu_error *error)
{
    *buffer = (struct device_buffer){.bytes = (bytes + 4095) / 4096 * 4096};
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (profile->unified_memory) {
        void *pages =
            mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED)
            return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for %s (%.1f MiB)", what,
                                 (double)bytes / (1 << 20));
        if (buffer->bytes >= HUGE_PAGE)
            madvise(pages, buffer->bytes, MADV_HUGEPAGE);
        buffer->host = pages;
        flags |= CL_MEM_USE_HOST_PTR;
    }
    cl_int code;
    buffer->memory = clCreateBuffer(context, flags, buffer->bytes, buffer->host, &code);
    if (code != CL_SUCCESS) {
        device_buffer_destroy(buffer);
        return npu_error_set(error, NPU_ERROR_MEMORY, "the device has no room for %s (%.1f MiB): %s", what,
                             (double)bytes / (1 << 20), opencl_error_name(code));
    }
    return NPU_OK;
}

void device_buffer_destroy(struct device_buffer *buffer)
{
    if (buffer->memory != NULL)
        clReleaseMemObject(buffer->memory);
    if (buffer->host != NULL)
        munmap(buffer->host, buffer->bytes);
    *buffer = (struct device_buffer){0};
}

enum npu_status device_buffer_write(const struct device_buffer *buffer, cl_command_queue queue, size_t offset,
                                    const void *from, size_t bytes, struct npu_error *error)
{
    cl_int code = clEnqueueWriteBuffer(queue, buffer->memory, CL_TRUE, offset, bytes, from, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return npu_error_set(error, NPU_ERROR_DEVICE, "clEnqueueWriteBuffer: %s (%d)", opencl_error_name(code), code);
    return NPU_OK;
}

enum npu_status device_buffer_read(const struct device_buffer *buffer, cl_command_queue queue, size_t offset, void *to,
                                   size_t bytes, struct npu_error *error)
{
    cl_int code = clEnqueueReadBuffer(queue, buffer->memory, CL_TRUE, offset, bytes, to, 0, NULL, NULL);
    if (code != CL_SUCCESS)
        return npu_error_set(error, NPU_ERROR_DEVICE, "clEnqueueReadBuffer: %s (%d)", opencl_error_name(code), code);
    return NPU_OK;
}
