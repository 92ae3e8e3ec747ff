/* Records every OpenCL call of a step: launches with sizes and arguments, copies, and whatever makes or compiles something.
 * For tests that are linked with --wrap for the functions of opencl_recorder.c; one thread. */
#ifndef TESTS_OPENCL_RECORDER_H
#define TESTS_OPENCL_RECORDER_H

#include "npu/opencl/device.h"

enum {
    RECORD_MAX_ARGUMENTS = 24,
    RECORD_MAX_CALLS = 2048
};

enum recorded_kind {
    RECORDED_LAUNCH,
    RECORDED_WRITE,
    RECORDED_READ,
    RECORDED_MAKE
};

struct recorded_argument {
    size_t size;
    unsigned char value[16];
};

struct recorded_call {
    enum recorded_kind kind;
    const void *object; /* the kernel of a launch, the buffer of a copy */
    size_t first, second; /* global and local size, or offset and bytes */
    int n_arguments;
    struct recorded_argument arguments[RECORD_MAX_ARGUMENTS]; /* all that the kernel had then */
};

struct recording {
    struct recorded_call calls[RECORD_MAX_CALLS];
    int n; /* -1: there were more than fit */
};

/* From now on calls are added to recording (emptied first); NULL: to none. Arguments are remembered all the time. */
void opencl_record(struct recording *recording);

#endif
