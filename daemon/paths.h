/* Where npud keeps files. */
#ifndef DAEMON_PATHS_H
#define DAEMON_PATHS_H

/* The folder for compiled programs: $CACHE_DIRECTORY (systemd's), else $XDG_CACHE_HOME/npud, else ~/.cache/npud.
 * malloc'ed; NULL when there is none, or memory is out. The folder need not exist yet. */
char *paths_cache_dir(void);

/* The folder for sessions: $STATE_DIRECTORY (systemd's). malloc'ed; NULL when it is not set, or memory is out. */
char *paths_state_dir(void);

#endif
