#include "daemon/cache_report.h"

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
