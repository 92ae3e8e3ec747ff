/* From a model file and a device to an executor that is ready: opens, reads, chooses, packs, compiles, checks. */
#ifndef NPU_LOADER_H
#define NPU_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "npu/error.h"

struct gguf_file;
struct model;
struct executor;

enum self_check { SELF_CHECK_OFF, SELF_CHECK_QUICK, SELF_CHECK_FULL };

struct npu_load_options {
    const char *model_path;
    const char *device;       /* selector as device_select takes it, or NULL */
    int32_t context;          /* positions per session; 0: the smaller of the model's and 4096 */
    int parallel;             /* generations that run at once */
    uint64_t kv_memory_bytes; /* 0: context * parallel, if memory allows */
    bool kv_f32;              /* keep K/V in single precision */
    const char *cache_dir;    /* compiled programs; or NULL */
    int self_check;           /* enum self_check */
};

struct npu_loaded {
    struct gguf_file *file;
    struct model *model;
    struct executor *executor;
    int32_t context;
    char device[192], platform[128], driver[64]; /* names and version, as the driver gives them */
    char description[512]; /* device, driver, kernels, launch mode, memory: for the log */
};

/* Blocking (seconds). On failure nothing is left behind. */
enum npu_status npu_load(struct npu_loaded *loaded, const struct npu_load_options *options, struct npu_error *error);
void npu_unload(struct npu_loaded *loaded);

#endif
