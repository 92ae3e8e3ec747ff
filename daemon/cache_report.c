#include "daemon/cache_report.h"

#include "npu/executor.h"

enum cache_miss cache_report_miss(const struct cache_report *report, int32_t max_cached)
{
    int32_t wanted = report->n_known < max_cached ? report->n_known : max_cached;
    if (report->n_cached + KV_BLOCK_TOKENS <= wanted)
        return CACHE_MISS_EVICTED;
    return report->differs_at >= 0 ? CACHE_MISS_DIFFERS : CACHE_MISS_NONE;
}

const char *cache_source_name(enum cache_source source)
{
    switch (source) {
    case CACHE_SOURCE_NONE:
        break;
    case CACHE_SOURCE_RESIDENT:
        return "resident";
    case CACHE_SOURCE_SHARED:
        return "shared";
    case CACHE_SOURCE_DISK:
        return "disk";
    }
    return "none";
}

const char *cache_miss_name(enum cache_miss miss)
{
    switch (miss) {
    case CACHE_MISS_NONE:
        break;
    case CACHE_MISS_FIRST_USE:
        return "first_use";
    case CACHE_MISS_DIFFERS:
        return "differs";
    case CACHE_MISS_EVICTED:
        return "evicted";
    case CACHE_MISS_DAMAGED:
        return "damaged";
    }
    return "none";
}
