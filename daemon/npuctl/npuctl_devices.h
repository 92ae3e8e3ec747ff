/* npuctl devices: what is there, and what would npud use of it? */
#ifndef DAEMON_NPUCTL_NPUCTL_DEVICES_H
#define DAEMON_NPUCTL_NPUCTL_DEVICES_H

/* argv[0] is "devices". Returns the exit status: 0, 1 an error (one line on stderr), 2 a wrong option. */
int npuctl_devices(int argc, char **argv);

#endif
