#include "npu/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_PATH = 1024
};

static uint64_t meminfo_available(const char *root)
{
    char path[MAX_PATH], line[128];
    unsigned long long kib;
    uint64_t bytes = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            bytes = (uint64_t)kib * 1024;
    if (file != NULL)
        fclose(file);
    return bytes;
}

/* The number in a control group's file. False: no such file, or the word "max". */
static bool read_number(const char *group, const char *name, uint64_t *ret_number)
{
    char path[2 * MAX_PATH];
    unsigned long long number;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool found = fscanf(file, "%llu", &number) == 1;
    fclose(file);
    if (found)
        *ret_number = number;
    return found;
}

/* What the group and those above it, up to the folder whose path has base_length bytes, leave. Pages of files count as
 * used in a group, but are given up when memory is asked for. */
static uint64_t group_available(char *group, size_t base_length, const char *limit_name, const char *usage_name,
                                const char *cache_word)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t limit, usage = 0, cache = 0;
        if (read_number(group, limit_name, &limit) && read_number(group, usage_name, &usage)) {
            char path[2 * MAX_PATH], line[256], word[64];
            unsigned long long number;
            snprintf(path, sizeof path, "%s/memory.stat", group);
            FILE *file = fopen(path, "r");
            while (file != NULL && fgets(line, sizeof line, file) != NULL)
                if (sscanf(line, "%63s %llu", word, &number) == 2 && strcmp(word, cache_word) == 0)
                    cache = number;
            if (file != NULL)
                fclose(file);
            usage = cache < usage ? usage - cache : 0;
            uint64_t left = limit > usage ? limit - usage : 0;
            least = left < least ? left : least;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL || (size_t)(slash - group) < base_length)
            return least;
        *slash = '\0';
    }
}

uint64_t host_memory_available(const char *root)
{
    uint64_t least = meminfo_available(root);
    char path[MAX_PATH], line[MAX_PATH], group[2 * MAX_PATH];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *name = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (name == NULL)
            continue;
        *name++ = '\0';
        controllers++;
        bool version2 = *controllers == '\0';
        if (!version2 && strcmp(controllers, "memory") != 0)
            continue;
        size_t base_length =
            (size_t)snprintf(group, sizeof group, "%s/sys/fs/cgroup%s", root, version2 ? "" : "/memory");
        snprintf(group + base_length, sizeof group - base_length, "%s", strcmp(name, "/") != 0 ? name : "");
        uint64_t left =
            version2 ? group_available(group, base_length, "memory.max", "memory.current", "file")
                     : group_available(group, base_length, "memory.limit_in_bytes", "memory.usage_in_bytes", "cache");
        least = left < least ? left : least;
    }
    if (file != NULL)
        fclose(file);
    return least;
}
