#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void log_init(struct log *log, enum log_level level)
{
    log->level = level;
    log->descriptor = STDERR_FILENO;
    log->with_priorities = !isatty(STDERR_FILENO);
}

static void write_line(const struct log *log, enum log_level level, const char *format, va_list arguments)
{
    /* Priorities of syslog(3): 3 error, 4 warning, 6 informational, 7 debug. */
    static const char *const priorities[] = {"<3>", "<4>", "<6>", "<7>"};
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    if (log == NULL || level > log->level)
        return;
    char line[1024];
    size_t length = (size_t)snprintf(line, sizeof line, "%s%s", log->with_priorities ? priorities[level] : "",
                                     log->with_priorities ? "" : names[level]);
    size_t room = sizeof line - 1 - length;
    int wanted = vsnprintf(line + length, room, format, arguments);
    size_t end = length + (wanted < 0 ? 0 : (size_t)wanted < room ? (size_t)wanted : room - 1);
    for (size_t i = length; i < end; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    }
    line[end++] = '\n';
    const char *rest = line;
    while (end > 0) {
        ssize_t n = write(log->descriptor, rest, end);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody reads the log; that is no reason to stop */
        rest += n;
        end -= (size_t)n;
    }
}

#define DEFINE_LOG(name, level)                                                                                        \
    void name(const struct log *log, const char *format, ...)                                                          \
    {                                                                                                                  \
        va_list arguments;                                                                                             \
        va_start(arguments, format);                                                                                   \
        write_line(log, level, format, arguments);                                                                     \
        va_end(arguments);                                                                                             \
    }

DEFINE_LOG(log_error, LOG_LEVEL_ERROR)
DEFINE_LOG(log_warning, LOG_LEVEL_WARNING)
DEFINE_LOG(log_info, LOG_LEVEL_INFO)
DEFINE_LOG(log_debug, LOG_LEVEL_DEBUG)
