#include "daemon/paths.h"

#include <stdlib.h>
#include <string.h>

static char *join(const char *folder, const char *rest)
{
    char *path = malloc(strlen(folder) + strlen(rest) + 1);
    if (path != NULL) {
        strcpy(path, folder);
        strcat(path, rest);
    }
    return path;
}

char *paths_cache_dir(void)
{
    const char *folder = getenv("CACHE_DIRECTORY");
    if (folder != NULL && folder[0] == '/') /* several are separated by colons: the first is ours */
        return strndup(folder, strcspn(folder, ":"));
    folder = getenv("XDG_CACHE_HOME");
    if (folder != NULL && folder[0] == '/')
        return join(folder, "/npud");
    folder = getenv("HOME");
    if (folder != NULL && folder[0] == '/' && folder[1] != '\0')
        return join(folder, "/.cache/npud");
    return NULL;
}
