/* How much memory may be used: the machine's, or what control groups leave of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npu/host_memory.h"

static char root[] = "/tmp/npud-test-memory-XXXXXX";

/* Makes the folders above it, too. */
static void write_file(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int open_root(void **state)
{
    (void)state;
    strcpy(root + strlen(root) - 6, "XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void nothing_is_known_without_proc(void **state)
{
    (void)state;
    assert_true(host_memory_available(root) == UINT64_MAX);
}

static void the_kernel_says_what_is_available(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable: 3000 kB\n");
    assert_true(host_memory_available(root) == 3000 * 1024);
}

static void a_group_of_version_2_or_one_above_it_leaves_less(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemAvailable: 3000 kB\n");
    write_file("/proc/self/cgroup", "0::/system.slice/npud.service\n");
    write_file("/sys/fs/cgroup/system.slice/npud.service/memory.max", "max\n");
    write_file("/sys/fs/cgroup/system.slice/npud.service/memory.current", "500\n");
    assert_true(host_memory_available(root) == 3000 * 1024);
    write_file("/sys/fs/cgroup/system.slice/memory.max", "1000000\n");
    write_file("/sys/fs/cgroup/system.slice/memory.current", "300000\n");
    write_file("/sys/fs/cgroup/system.slice/memory.stat", "anon 100000\nfile 200000\n");
    assert_true(host_memory_available(root) == 900000);
    write_file("/sys/fs/cgroup/system.slice/npud.service/memory.max", "400\n");
    assert_true(host_memory_available(root) == 0);
}

static void a_group_of_version_1_leaves_less(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemAvailable: 3000 kB\n");
    write_file("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/box\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "77777\n");
    write_file("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "2000000\n");
    write_file("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "600000\n");
    write_file("/sys/fs/cgroup/memory/box/memory.stat", "cache 100000\n");
    assert_true(host_memory_available(root) == 1500000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_known_without_proc, open_root, remove_root),
        cmocka_unit_test_setup_teardown(the_kernel_says_what_is_available, open_root, remove_root),
        cmocka_unit_test_setup_teardown(a_group_of_version_2_or_one_above_it_leaves_less, open_root, remove_root),
        cmocka_unit_test_setup_teardown(a_group_of_version_1_leaves_less, open_root, remove_root),
    };
    return cmocka_run_group_tests_name("host memory", tests, NULL, NULL);
}
