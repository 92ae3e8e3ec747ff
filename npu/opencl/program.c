#include "npu/opencl/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/sources.h"

/* In the order in which they build on each other; x86/ replaces the portable file of the same name, or adds one. */
static const char *const step_sources[] = {"common.cl",
                                           "prefetch.cl",
                                           "int8_dot.cl",
                                           "norm.cl",
                                           "heads.cl",
                                           "gated.cl",
                                           "elementwise.cl",
                                           "select.cl",
                                           "matmul_q4.cl",
                                           "matmul_q8.cl",
                                           "matmul_q6.cl",
                                           "matmul_q5.cl",
                                           "matmul_q4k.cl",
                                           "matmul_q5k.cl",
                                           "matmul_q2.cl",
                                           "matmul.cl",
                                           "embed.cl",
                                           "attention.cl",
                                           "spin.cl",
                                           "barrier.cl",
                                           "run_ops.cl",
                                           "probe.cl",
                                           NULL};
static const char *const probe_sources[] = {"spin.cl", "barrier.cl", "probe.cl", NULL};
static const char *const roof_sources[] = {"common.cl", "int8_dot.cl", "roof.cl", "roof_int8.cl", NULL};
static const char *const *const sources_of[] = {
    [PROGRAM_STEP] = step_sources, [PROGRAM_PROBE] = probe_sources, [PROGRAM_ROOF] = roof_sources};
enum {
    MAX_SOURCES = 32
};

/* A cached program: this header, then the driver's binary. */
struct cache_header {
    char magic[8];
    uint64_t key;
    uint64_t bytes;
    uint64_t checksum;
};
static const char cache_magic[8] = "npudprg1";

static const char *find_source(const char *folder, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%s%s", folder, name);
    for (const struct kernel_source *source = kernel_sources; source->name != NULL; source++) {
        if (strcmp(source->name, path) == 0)
            return source->text;
    }
    return NULL;
}

static int collect_sources(const struct program_options *options, const char *texts[MAX_SOURCES])
{
    int n = 0;
    texts[n++] = find_source("", "op_entry.h");
    for (const char *const *name = sources_of[options->sources]; *name != NULL; name++) {
        const char *text = options->x86_kernels ? find_source("x86/", *name) : NULL;
        if (text == NULL)
            text = find_source("portable/", *name);
        if (text != NULL)
            texts[n++] = text;
    }
    return n;
}

static uint64_t program_key(const char *const *texts, int n, const char *options, const struct device_profile *profile)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return 0;
    XXH3_64bits_reset(state);
    for (int i = 0; i < n; i++)
        XXH3_64bits_update(state, texts[i], strlen(texts[i]) + 1);
    const char *names[] = {options, profile->platform_name, profile->device_name, profile->driver_version};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        XXH3_64bits_update(state, names[i], strlen(names[i]) + 1);
    uint64_t key = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return key;
}

static unsigned char *read_cache(const char *path, uint64_t key, size_t *ret_bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    struct cache_header header;
    struct stat info;
    unsigned char *bytes = NULL;
    if (fread(&header, sizeof header, 1, file) == 1 && memcmp(header.magic, cache_magic, sizeof cache_magic) == 0 &&
        header.key == key && fstat(fileno(file), &info) == 0 && info.st_size >= (off_t)sizeof header &&
        header.bytes == (uint64_t)info.st_size - sizeof header && header.bytes > 0) {
        bytes = malloc(header.bytes);
        if (bytes != NULL && (fread(bytes, 1, header.bytes, file) != header.bytes ||
                              XXH3_64bits(bytes, header.bytes) != header.checksum)) {
            free(bytes);
            bytes = NULL;
        }
        *ret_bytes = header.bytes;
    }
    fclose(file);
    return bytes;
}

static void write_cache(const char *path, uint64_t key, const unsigned char *bytes, size_t n)
{
    char temporary[1100];
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "wb");
    if (file == NULL)
        return;
    struct cache_header header = {.key = key, .bytes = n, .checksum = XXH3_64bits(bytes, n)};
    memcpy(header.magic, cache_magic, sizeof cache_magic);
    bool written = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(bytes, 1, n, file) == n;
    written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path) != 0)
        unlink(temporary);
}

static void store_binary(cl_program program, const char *path, uint64_t key)
{
    size_t bytes = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) != CL_SUCCESS || bytes == 0)
        return;
    unsigned char *binary = malloc(bytes);
    if (binary != NULL && clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
        write_cache(path, key, binary, bytes);
    free(binary);
}

/* Makes the folder and its parents. */
static void make_folders(const char *path)
{
    char partial[1024];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *slash = partial + 1; *slash != '\0'; slash++) {
        if (*slash == '/') {
            *slash = '\0';
            mkdir(partial, 0755);
            *slash = '/';
        }
    }
    mkdir(partial, 0755);
}

static enum npu_status build_failure(cl_program program, const struct device_profile *profile, cl_int code,
                                     struct npu_error *error)
{
    char log[4096] = "";
    clGetProgramBuildInfo(program, profile->id, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
    const char *first = strstr(log, "error:");
    return npu_error_set(error, NPU_ERROR_DEVICE, "the driver of %s cannot compile the kernels (%s): %.300s",
                         profile->device_name, opencl_error_name(code), first != NULL ? first : log);
}

enum npu_status program_build(struct program *program, cl_context context, const struct device_profile *profile,
                              const struct program_options *options, const char *cache_dir, struct npu_error *error)
{
    *program = (struct program){0};
    const char *texts[MAX_SOURCES];
    int n = collect_sources(options, texts);
    char build_options[256];
    snprintf(build_options, sizeof build_options,
             "-cl-std=%s -DWEIGHT_SEGMENTS=%d -DKV_SEGMENTS=%d -DMAX_HEAD_SIZE=%d -DKV_HALF=%d -DONE_LAUNCH=%d "
             "-DROWS_PER_PASS=%d -DLAYOUTS=%u -DHAS_FMA=%d -DVNNI_ENCODING=%d",
             options->one_launch ? "CL3.0" : "CL1.2", options->weight_segments, options->kv_segments,
             options->max_head_size, options->kv_half, options->one_launch, profile->rows_per_pass, options->layouts,
             profile->fma, profile->vnni_encoding);
    program->key = program_key(texts, n, build_options, profile);

    char path[1024] = "";
    cl_int code;
    if (cache_dir != NULL) {
        make_folders(cache_dir);
        snprintf(path, sizeof path, "%s/program-%016llx.bin", cache_dir, (unsigned long long)program->key);
        size_t bytes = 0;
        unsigned char *binary = read_cache(path, program->key, &bytes);
        if (binary != NULL) {
            const unsigned char *binaries = binary;
            program->program = clCreateProgramWithBinary(context, 1, &profile->id, &bytes, &binaries, NULL, &code);
            if (program->program != NULL &&
                clBuildProgram(program->program, 1, &profile->id, build_options, NULL, NULL) == CL_SUCCESS) {
                program->from_cache = true;
                free(binary);
                return NPU_OK;
            }
            if (program->program != NULL)
                clReleaseProgram(program->program);
            free(binary);
        }
    }
    program->program = clCreateProgramWithSource(context, (cl_uint)n, texts, NULL, &code);
    if (program->program == NULL)
        return npu_error_set(error, NPU_ERROR_DEVICE, "clCreateProgramWithSource: %s", opencl_error_name(code));
    code = clBuildProgram(program->program, 1, &profile->id, build_options, NULL, NULL);
    if (code != CL_SUCCESS) {
        enum npu_status status = build_failure(program->program, profile, code, error);
        clReleaseProgram(program->program);
        program->program = NULL;
        return status;
    }
    if (path[0] != '\0')
        store_binary(program->program, path, program->key);
    return NPU_OK;
}
