/* Where npud keeps files. */
#ifndef DAEMON_PATHS_H
#define DAEMON_PATHS_H

/* The folder for compiled programs: $CACHE_DIRECTORY (systemd's), else $XDG_CACHE_HOME/npud, else ~/.cache/npud.
 * malloc'ed; NULL when there is none, or memory is out. The folder need not exist yet. */
char *paths_cache_dir(void);

#endif
