/* Tells the service manager how the daemon fares (sd_notify). Without one, or built without libsystemd, nothing
 * happens. Thread: the loop's. */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <stdint.h>

void notify_status(const char *status); /* shown by systemctl status */
void notify_ready(const char *status);
void notify_stopping(void);

/* Microseconds within which the manager wants a sign of life; 0: it does not. */
uint64_t notify_watchdog_us(void);
void notify_alive(void);

#endif
