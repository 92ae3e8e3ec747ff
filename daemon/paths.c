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

/* What systemd sets; several folders are separated by colons: the first is ours. */
static char *first_folder(const char *variable)
{
    const char *folder = getenv(variable);
    return folder != NULL && folder[0] == '/' ? strndup(folder, strcspn(folder, ":")) : NULL;
}

char *paths_state_dir(void)
{
    return first_folder("STATE_DIRECTORY");
}

char *paths_cache_dir(void)
{
    const char *folder = getenv("CACHE_DIRECTORY");
    if (folder != NULL && folder[0] == '/')
        return first_folder("CACHE_DIRECTORY");
    folder = getenv("XDG_CACHE_HOME");
    if (folder != NULL && folder[0] == '/')
        return join(folder, "/npud");
    folder = getenv("HOME");
    if (folder != NULL && folder[0] == '/' && folder[1] != '\0')
        return join(folder, "/.cache/npud");
    return NULL;
}
