#include "npu/opencl/device.h"

#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "kernels/op_entry.h"

enum {
    MAX_PLATFORMS = 16
};

const char *opencl_error_name(cl_int code)
{
    switch (code) {
    case CL_SUCCESS:
        return "CL_SUCCESS";
    case CL_DEVICE_NOT_FOUND:
        return "CL_DEVICE_NOT_FOUND";
    case CL_DEVICE_NOT_AVAILABLE:
        return "CL_DEVICE_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
        return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES:
        return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY:
        return "CL_OUT_OF_HOST_MEMORY";
    case CL_BUILD_PROGRAM_FAILURE:
        return "CL_BUILD_PROGRAM_FAILURE";
    case CL_INVALID_VALUE:
        return "CL_INVALID_VALUE";
    case CL_INVALID_BUFFER_SIZE:
        return "CL_INVALID_BUFFER_SIZE";
    case CL_INVALID_KERNEL_ARGS:
        return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_WORK_GROUP_SIZE:
        return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_INVALID_KERNEL_NAME:
        return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_BINARY:
        return "CL_INVALID_BINARY";
    case -1001:
        return "no OpenCL driver is installed (CL_PLATFORM_NOT_FOUND_KHR)";
    default:
        return "OpenCL error";
    }
}

/* The whole CPUs that the cgroup's quota allows; 0: no quota. Both cgroup versions keep it under these names. */
static int cgroup_cpus(void)
{
    long long quota = -1, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (file != NULL) {
        if (fscanf(file, "%lld %lld", &quota, &period) != 2)
            quota = -1; /* "max" */
        fclose(file);
    } else if ((file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r")) != NULL) {
        if (fscanf(file, "%lld", &quota) != 1)
            quota = -1;
        fclose(file);
        file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
        if (file != NULL) {
            if (fscanf(file, "%lld", &period) != 1)
                period = 0;
            fclose(file);
        }
    }
    if (quota <= 0 || period <= 0)
        return 0;
    return quota < period ? 1 : (int)(quota / period);
}

int device_host_cpus(void)
{
    cpu_set_t set;
    int cpus = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        cpus = CPU_COUNT(&set);
    int quota = cgroup_cpus();
    if (quota > 0 && quota < cpus)
        cpus = quota;
    return cpus < 1 ? 1 : cpus;
}

static bool has_feature(cl_device_id id, const char *name)
{
    size_t bytes = 0;
    if (clGetDeviceInfo(id, CL_DEVICE_OPENCL_C_FEATURES, 0, NULL, &bytes) != CL_SUCCESS || bytes == 0)
        return false;
    cl_name_version *features = malloc(bytes);
    bool found = false;
    if (features != NULL && clGetDeviceInfo(id, CL_DEVICE_OPENCL_C_FEATURES, bytes, features, NULL) == CL_SUCCESS) {
        for (size_t i = 0; i < bytes / sizeof *features; i++)
            found = found || strcmp(features[i].name, name) == 0;
    }
    free(features);
    return found;
}

static void fill_profile(struct device_profile *profile, cl_platform_id platform, cl_device_id id)
{
    *profile = (struct device_profile){.platform = platform, .id = id};
    clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof profile->platform_name - 1, profile->platform_name, NULL);
    clGetDeviceInfo(id, CL_DEVICE_NAME, sizeof profile->device_name - 1, profile->device_name, NULL);
    clGetDeviceInfo(id, CL_DRIVER_VERSION, sizeof profile->driver_version - 1, profile->driver_version, NULL);
    cl_device_type type = 0;
    clGetDeviceInfo(id, CL_DEVICE_TYPE, sizeof type, &type, NULL);
    profile->is_cpu = (type & CL_DEVICE_TYPE_CPU) != 0;
    cl_bool unified = CL_FALSE;
    clGetDeviceInfo(id, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof unified, &unified, NULL);
    profile->unified_memory = unified || profile->is_cpu;
    cl_uint units = 1;
    clGetDeviceInfo(id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    profile->compute_units = units;
    cl_ulong size = 0;
    clGetDeviceInfo(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof size, &size, NULL);
    profile->max_allocation = (size_t)size;
    size = 0;
    clGetDeviceInfo(id, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof size, &size, NULL);
    profile->global_memory = (size_t)size;
    cl_device_fp_config config = 0;
    clGetDeviceInfo(id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config, NULL);
    /* Intel's CPU runtime does not report what it has, and fuses products and sums as it likes where fma is not written. */
    bool rusticl = strcmp(profile->platform_name, "rusticl") == 0;
    profile->fma = (config & CL_FP_FMA) != 0 || !rusticl;
    cl_version version = 0;
    bool is_3 = clGetDeviceInfo(id, CL_DEVICE_NUMERIC_VERSION, sizeof version, &version, NULL) == CL_SUCCESS &&
                CL_VERSION_MAJOR(version) >= 3;
    profile->atomics =
        is_3 && has_feature(id, "__opencl_c_atomic_order_acq_rel") && has_feature(id, "__opencl_c_atomic_scope_device");
    /* Mesa's llvmpipe is a CPU that wants to be treated like a GPU: it runs neighbouring work-items as the lanes of a vector,
     * and ends any work-item quietly after 65,535 rounds of its loops. */
    profile->spread = !profile->is_cpu || rusticl;
    profile->rows_per_pass = profile->spread ? 1 : 4;
    int cpus = device_host_cpus();
    profile->workers = profile->is_cpu && cpus < (int)units ? cpus : (int)units;
    size_t largest = 1, wanted = !profile->spread ? 1 : profile->is_cpu ? 8 : 64;
    clGetDeviceInfo(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof largest, &largest, NULL);
    profile->local_size = (int)(largest < wanted ? largest : wanted);
}

static enum npu_status no_device(cl_int code, int n_platforms, struct npu_error *error)
{
    if (n_platforms == 0)
        return npu_error_set(error, NPU_ERROR_DEVICE,
                             "no OpenCL driver found (%s): install one, for example pocl-opencl-icd for the CPU",
                             opencl_error_name(code));
    /* PoCL shows no device when it cannot make its kernel cache. */
    const char *cache = getenv("POCL_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[512];
    if (cache != NULL)
        snprintf(folder, sizeof folder, "%s", cache);
    else if (xdg != NULL)
        snprintf(folder, sizeof folder, "%s/pocl", xdg);
    else
        snprintf(folder, sizeof folder, "%s/.cache/pocl", home != NULL ? home : "");
    return npu_error_set(error, NPU_ERROR_DEVICE,
                         "the OpenCL drivers show no device (%s): PoCL needs a writable cache folder, here %s "
                         "(set XDG_CACHE_HOME to a writable one), or install a driver for your device",
                         opencl_error_name(code), folder);
}

enum npu_status device_list(struct device_profile profiles[DEVICE_MAX], int *ret_n, struct npu_error *error)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    cl_int code = clGetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms);
    if (code != CL_SUCCESS)
        n_platforms = 0;
    if (n_platforms > MAX_PLATFORMS)
        n_platforms = MAX_PLATFORMS;
    int n = 0;
    cl_int last = code;
    for (cl_uint p = 0; p < n_platforms; p++) {
        cl_device_id ids[DEVICE_MAX];
        cl_uint n_ids = 0;
        code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, DEVICE_MAX, ids, &n_ids);
        if (code != CL_SUCCESS) {
            last = code;
            continue;
        }
        for (cl_uint d = 0; d < n_ids && d < DEVICE_MAX && n < DEVICE_MAX; d++)
            fill_profile(&profiles[n++], platforms[p], ids[d]);
    }
    if (n == 0)
        return no_device(last, (int)n_platforms, error);
    *ret_n = n;
    return NPU_OK;
}

static bool contains_text(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text != '\0'; text++) {
        if (strncasecmp(text, part, length) == 0)
            return true;
    }
    return length == 0;
}

enum npu_status device_select(struct device_profile *profile, const char *selector, struct npu_error *error)
{
    struct device_profile *profiles = calloc(DEVICE_MAX, sizeof *profiles);
    if (profiles == NULL)
        return npu_error_set(error, NPU_ERROR_MEMORY, "no memory for the device list");
    int n = 0, chosen = -1;
    enum npu_status status = device_list(profiles, &n, error);
    if (status != NPU_OK) {
        free(profiles);
        return status;
    }
    if (selector == NULL) {
        chosen = 0;
        while (chosen < n && profiles[chosen].is_cpu)
            chosen++;
        if (chosen == n)
            chosen = 0;
    } else {
        char *end;
        errno = 0;
        long index = strtol(selector, &end, 10);
        if (errno == 0 && *selector != '\0' && *end == '\0' && isdigit((unsigned char)*selector)) {
            chosen = index >= 0 && index < n ? (int)index : -1;
        } else {
            for (int i = n - 1; i >= 0; i--) {
                if (contains_text(profiles[i].platform_name, selector) ||
                    contains_text(profiles[i].device_name, selector))
                    chosen = i;
            }
        }
    }
    if (chosen < 0)
        status = npu_error_set(error, NPU_ERROR_INPUT,
                               "no device matches '%s': give an index from 0 to %d or a part of a name (npuctl devices "
                               "lists them)",
                               selector, n - 1);
    else
        *profile = profiles[chosen];
    free(profiles);
    return status;
}

#if defined(__x86_64__)
static bool compiles(cl_context context, cl_device_id device, const char *source)
{
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, NULL);
    if (program == NULL)
        return false;
    bool builds = clBuildProgram(program, 1, &device, "", NULL, NULL) == CL_SUCCESS;
    clReleaseProgram(program);
    return builds;
}

/* Intel's manual, CPUID leaf 7. That the system saves the registers is in the compiler's own answers. */
static int host_vnni_encoding(void)
{
    unsigned a, b, c, d;
    if (__builtin_cpu_supports("avx512vl") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c >> 11 & 1))
        return 512;
    if (__builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1))
        return 256;
    return 0;
}

static void probe_x86(struct device_profile *profile, cl_context context)
{
    static const char *const builtins =
        "#if !defined(__AVX2__) || !defined(__has_builtin)\n#error no AVX2 builtins\n#endif\n"
        "typedef char char32 __attribute__((ext_vector_type(32)));\n"
        "__kernel void probe(__global char32 *x, __global float8 *y, __global const half *z) {\n"
        "  x[0] = __builtin_astype(__builtin_ia32_pmaddubsw256(x[1], x[2]), char32); y[0] = vload_half8(0, z); }\n";
    static const char *const vnni[] = {
        "__kernel void probe(__global int8 *x) {\n"
        "  int8 a = x[0], b = x[1]; __asm__(\"vpdpbusd %1, %1, %0\" : \"+v\"(a) : \"v\"(b)); x[0] = a; }\n",
        "__kernel void probe(__global int8 *x) {\n"
        "  int8 a = x[0], b = x[1]; __asm__(\"{vex} vpdpbusd %1, %1, %0\" : \"+x\"(a) : \"x\"(b)); x[0] = a; }\n"};
    profile->x86_kernels = compiles(context, profile->id, builtins);
    int encoding = profile->x86_kernels ? host_vnni_encoding() : 0;
    if (encoding != 0 && compiles(context, profile->id, vnni[encoding == 256]))
        profile->vnni_encoding = encoding;
}
#endif

void device_probe_x86(struct device_profile *profile, cl_context context)
{
    profile->x86_kernels = false;
    profile->vnni_encoding = 0;
#if defined(__x86_64__)
    if (profile->is_cpu)
        probe_x86(profile, context);
#else
    (void)context;
#endif
}
