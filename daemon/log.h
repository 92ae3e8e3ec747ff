/* Log lines on stderr, one write each, with the priority prefixes that journald reads ("<6>") unless stderr is a
 * terminal. Thread: any; a struct log is constant after log_init. */
#ifndef DAEMON_LOG_H
#define DAEMON_LOG_H

#include <stdbool.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

struct log {
    enum log_level level; /* the least important one that is written */
    int descriptor;
    bool with_priorities;
};

/* Writes to stderr. */
void log_init(struct log *log, enum log_level level);

/* One line; control characters (a client may choose some of the text) become '?', and it is cut at 1,024 bytes.
 * NULL: nothing is written. */
void log_error(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_warning(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_info(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_debug(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
