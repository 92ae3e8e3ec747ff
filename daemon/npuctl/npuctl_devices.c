#include "daemon/npuctl/npuctl_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu/devices.h"

static const char usage[] = "usage: npuctl devices\n"
                            "Lists the OpenCL devices by the index that --device takes, with what npud would use of "
                            "each. * marks the default.\n";

static double gibibytes(size_t bytes)
{
    return (double)bytes / (1 << 30);
}

/* No barrier takes that long: the probe's groups never ran at the same time. */
static const double busy_us = 1e6;

static void print_device(int index, const struct device_summary *device)
{
    printf("%d%s %s\n", index, device->is_default ? "*" : "", device->name);
    printf("    platform  %s, driver %s\n", device->platform, device->driver);
    printf("    type      %s, %u compute units, %.1f GiB of memory (largest buffer %.1f GiB)\n", device->type,
           device->compute_units, gibibytes(device->memory_bytes), gibibytes(device->allocation_bytes));
    if (!device->usable) {
        printf("    npud      cannot use it: %s\n", device->reason);
        return;
    }
    printf("    npud      %d worker%s, %s kernels, ", device->workers, device->workers == 1 ? "" : "s",
           device->x86_kernels ? "x86" : "portable");
    if (!device->one_launch)
        printf("one op a launch (%s)\n", device->reason);
    else if (device->workers > 1 && device->barrier_us > busy_us)
        printf("one launch a step once the machine is calm\n");
    else if (device->workers > 1)
        printf("one launch a step (barrier %.2f us)\n", device->barrier_us);
    else
        printf("one launch a step\n");
}

int npuctl_devices(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1) {
        fprintf(stderr, "npuctl devices: unexpected argument: %s (see npuctl devices --help)\n", argv[1]);
        return 2;
    }
    struct device_summary *devices = calloc(DEVICES_MAX, sizeof *devices);
    if (devices == NULL) {
        fprintf(stderr, "npuctl devices: no memory for the device list\n");
        return 1;
    }
    int n = 0;
    struct npu_error error = {0};
    enum npu_status status = devices_describe(devices, &n, &error);
    if (status != NPU_OK)
        fprintf(stderr, "npuctl devices: %s\n", error.message);
    for (int i = 0; status == NPU_OK && i < n; i++)
        print_device(i, &devices[i]);
    free(devices);
    return status == NPU_OK ? 0 : 1;
}
