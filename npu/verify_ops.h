/* A device's ops compared one by one with the reference ops that they stand for. Each reference op is fed with the
 * device's own inputs (for int8 products: the int8 copy of the activations, times its scales), so that an error shows at
 * the op that makes it. Works on executors that npu_load and opencl_executor_create made. Thread: the executor's. */
#ifndef NPU_VERIFY_OPS_H
#define NPU_VERIFY_OPS_H

#include <stdbool.h>

#include "npu/error.h"
#include "npu/executor.h"

#define VERIFY_OPS_LIMIT 1e-4

struct verify_ops_options {
    double limit; /* of an error; VERIFY_OPS_LIMIT */
    int max_rows; /* 0: all rows; else so many, the first and the last among them */
    int max_outputs; /* 0: all outputs of a matrix; else about so many, the first and the last among them */
    bool distinct_only; /* check each kind, shape and layout once; layers that have none of them are not even run */
};

/* What an op left behind, at the place where it is furthest from the reference. */
struct op_check {
    int entry; /* in the device's op table */
    int layer; /* -1 outside layers */
    const char *kernel; /* static */
    char name[96]; /* the op and its tensor */
    const char *output; /* what differs: output, int8 copy, keys, values or choice; static */
    int row; /* of the step */
    int element;
    double
        error; /* max|device - reference| / max|reference| of that row, the worst of all rows; infinite: not finite */
    double device, reference;
    bool passed;
};

struct op_checks {
    struct op_check *checks; /* in the order of the table */
    int n, n_failed;
};

/* Runs the step one op a launch. The step's K/V is written as executor_step would; results are not returned. */
enum npu_status verify_ops_run(struct op_checks *ret_checks, struct executor *executor, const struct step *step,
                               const struct verify_ops_options *options, struct npu_error *error);
void op_checks_destroy(struct op_checks *checks);

/* "layer 3 matmul blk.3.attn_q.weight (kernel matmul), row 2, output 17: device 1.5, reference 0.25" */
void op_check_describe(const struct op_check *check, char *text, size_t bytes);

#endif
