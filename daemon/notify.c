#include "daemon/notify.h"

#ifdef NPUD_SYSTEMD

#include <systemd/sd-daemon.h>

void notify_status(const char *status)
{
    sd_notifyf(0, "STATUS=%s", status);
}

void notify_ready(const char *status)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status);
}

void notify_stopping(void)
{
    sd_notify(0, "STOPPING=1\nSTATUS=Stopping");
}

uint64_t notify_watchdog_us(void)
{
    uint64_t us;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}

void notify_alive(void)
{
    sd_notify(0, "WATCHDOG=1");
}

#else

void notify_status(const char *status)
{
    (void)status;
}

void notify_ready(const char *status)
{
    (void)status;
}

void notify_stopping(void)
{
}

uint64_t notify_watchdog_us(void)
{
    return 0;
}

void notify_alive(void)
{
}

#endif
