#include "opencl_recorder.h"

#include <string.h>

enum {
    MAX_KERNELS = 64
};

struct known_kernel {
    cl_kernel kernel;
    int n_arguments;
    struct recorded_argument arguments[RECORD_MAX_ARGUMENTS];
};

static struct known_kernel kernels[MAX_KERNELS];
static int next_kernel; /* the oldest place: released kernels are forgotten in time */
static struct recording *current;

cl_int __real_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value);
cl_int __wrap_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value);
cl_kernel __real_clCreateKernel(cl_program program, const char *name, cl_int *code);
cl_kernel __wrap_clCreateKernel(cl_program program, const char *name, cl_int *code);
cl_mem __real_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code);
cl_mem __wrap_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code);
cl_int __real_clBuildProgram(cl_program program, cl_uint n_devices, const cl_device_id *devices, const char *options,
                             void(CL_CALLBACK *notify)(cl_program, void *), void *context);
cl_int __wrap_clBuildProgram(cl_program program, cl_uint n_devices, const cl_device_id *devices, const char *options,
                             void(CL_CALLBACK *notify)(cl_program, void *), void *context);
cl_int __real_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n_events,
                                     const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n_events,
                                     const cl_event *events, cl_event *event);
cl_int __real_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *from, cl_uint n_events, const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *from, cl_uint n_events, const cl_event *events, cl_event *event);
cl_int __real_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                  void *to, cl_uint n_events, const cl_event *events, cl_event *event);
cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                  void *to, cl_uint n_events, const cl_event *events, cl_event *event);

static struct recorded_call *add(enum recorded_kind kind, const void *object, size_t first, size_t second)
{
    static struct recorded_call unused;
    if (current == NULL || current->n < 0)
        return &unused;
    if (current->n == RECORD_MAX_CALLS) {
        current->n = -1;
        return &unused;
    }
    struct recorded_call *call = &current->calls[current->n++];
    memset(call, 0, sizeof *call);
    call->kind = kind;
    call->object = object;
    call->first = first;
    call->second = second;
    return call;
}

static struct known_kernel *find(cl_kernel kernel)
{
    for (int i = 0; i < MAX_KERNELS; i++)
        if (kernels[i].kernel == kernel)
            return &kernels[i];
    return NULL;
}

void opencl_record(struct recording *recording)
{
    current = recording;
    if (recording != NULL)
        recording->n = 0;
}

cl_int __wrap_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *value)
{
    struct known_kernel *known = find(kernel);
    if (known != NULL && index < RECORD_MAX_ARGUMENTS && value != NULL) {
        struct recorded_argument *argument = &known->arguments[index];
        memset(argument, 0, sizeof *argument);
        argument->size = size;
        memcpy(argument->value, value, size < sizeof argument->value ? size : sizeof argument->value);
        if ((int)index >= known->n_arguments)
            known->n_arguments = (int)index + 1;
    }
    return __real_clSetKernelArg(kernel, index, size, value);
}

cl_kernel __wrap_clCreateKernel(cl_program program, const char *name, cl_int *code)
{
    cl_kernel kernel = __real_clCreateKernel(program, name, code);
    struct known_kernel *known = find(kernel); /* a released one had the same address */
    if (known == NULL) {
        known = &kernels[next_kernel];
        next_kernel = (next_kernel + 1) % MAX_KERNELS;
    }
    memset(known, 0, sizeof *known);
    known->kernel = kernel;
    add(RECORDED_MAKE, kernel, 0, 0);
    return kernel;
}

cl_mem __wrap_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code)
{
    cl_mem buffer = __real_clCreateBuffer(context, flags, size, host, code);
    add(RECORDED_MAKE, buffer, size, 0);
    return buffer;
}

cl_int __wrap_clBuildProgram(cl_program program, cl_uint n_devices, const cl_device_id *devices, const char *options,
                             void(CL_CALLBACK *notify)(cl_program, void *), void *context)
{
    add(RECORDED_MAKE, program, 0, 0);
    return __real_clBuildProgram(program, n_devices, devices, options, notify, context);
}

cl_int __wrap_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset,
                                     const size_t *global, const size_t *local, cl_uint n_events,
                                     const cl_event *events, cl_event *event)
{
    struct recorded_call *call = add(RECORDED_LAUNCH, kernel, global[0], local != NULL ? local[0] : 0);
    const struct known_kernel *known = find(kernel);
    if (known != NULL) {
        call->n_arguments = known->n_arguments;
        memcpy(call->arguments, known->arguments, sizeof call->arguments);
    }
    return __real_clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, n_events, events, event);
}

cl_int __wrap_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                   const void *from, cl_uint n_events, const cl_event *events, cl_event *event)
{
    add(RECORDED_WRITE, buffer, offset, bytes);
    return __real_clEnqueueWriteBuffer(queue, buffer, blocking, offset, bytes, from, n_events, events, event);
}

cl_int __wrap_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t bytes,
                                  void *to, cl_uint n_events, const cl_event *events, cl_event *event)
{
    add(RECORDED_READ, buffer, offset, bytes);
    return __real_clEnqueueReadBuffer(queue, buffer, blocking, offset, bytes, to, n_events, events, event);
}
