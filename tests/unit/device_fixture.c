#include "device_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "npu/half.h"
#include "random_model.h"

static struct device_profile profile;
static char cache_dir[64];

bool device_fixture_open(void)
{
    const char *selector = getenv("NPUD_TEST_DEVICE");
    struct npu_error error = {0};
    if (selector == NULL)
        selector = "Portable Computing Language";
    if (device_select(&profile, selector, &error) != NPU_OK) {
        printf("OpenCL device '%s': skipped, %s\n", selector, error.message);
        return false;
    }
    snprintf(cache_dir, sizeof cache_dir, "/tmp/npud-test-XXXXXX");
    if (mkdtemp(cache_dir) == NULL)
        cache_dir[0] = '\0';
    printf("OpenCL device: %s on %s\n", profile.device_name, profile.platform_name);
    return true;
}

void device_fixture_close(void)
{
    DIR *folder = cache_dir[0] != '\0' ? opendir(cache_dir) : NULL;
    if (folder == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    closedir(folder);
    rmdir(cache_dir);
}

int device_kernel_kinds(enum opencl_kernels kinds[3])
{
    cl_int code;
    cl_context context = clCreateContext(NULL, 1, &profile.id, NULL, NULL, &code);
    assert_int_equal(code, CL_SUCCESS);
    struct device_profile probed = profile;
    device_probe_x86(&probed, context);
    clReleaseContext(context);
    int n = 0;
    kinds[n++] = OPENCL_KERNELS_PORTABLE;
    if (probed.vnni_encoding != 0)
        kinds[n++] = OPENCL_KERNELS_WITHOUT_VNNI;
    if (probed.x86_kernels)
        kinds[n++] = OPENCL_KERNELS_BEST;
    return n;
}

const char *device_kernels_name(const struct opencl_executor *executor)
{
    return !executor->profile.x86_kernels ? "portable" : executor->profile.vnni_encoding != 0 ? "x86 VNNI" : "x86";
}

bool device_is_spread(void)
{
    return profile.spread;
}

struct opencl_executor *device_executor(const struct model *model, const struct device_variant *variant, int n_blocks,
                                        int max_context)
{
    struct opencl_options options = {.n_blocks = n_blocks,
                                     .max_tables = 16,
                                     .max_returning = EXECUTOR_MAX_ROWS,
                                     .max_context = max_context,
                                     .kv_half = !variant->kv_f32,
                                     .kernels = variant->kernels,
                                     .launch_each_only = variant->launch_each,
                                     .cache_dir = cache_dir[0] != '\0' ? cache_dir : NULL};
    struct device_profile limited = profile;
    if (variant->max_allocation > 0)
        limited.max_allocation = variant->max_allocation;
    struct opencl_executor *executor = NULL;
    struct npu_error error = {0};
    if (opencl_executor_create(&executor, model, &limited, &options, &error) != NPU_OK)
        fail_msg("%s", error.message);
    return executor;
}

void device_fill_history(struct opencl_executor *executor)
{
    size_t element = executor->kv_element_bytes, n = executor->base.block_bytes / element;
    unsigned char *bytes = malloc(n * element);
    assert_non_null(bytes);
    uint32_t state = 12345;
    for (int32_t block = 0; block < executor->base.n_blocks; block++) {
        for (size_t i = 0; i < n; i++) {
            float value = random_float(&state);
            uint16_t half = float_to_half(value);
            memcpy(bytes + i * element, element == 2 ? (void *)&half : (void *)&value, element);
        }
        assert_int_equal(executor_write_block(&executor->base, block, bytes, NULL), NPU_OK);
    }
    free(bytes);
}
