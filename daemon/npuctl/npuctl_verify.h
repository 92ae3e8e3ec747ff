/* npuctl verify: is what a device computes what the model means? */
#ifndef DAEMON_NPUCTL_NPUCTL_VERIFY_H
#define DAEMON_NPUCTL_NPUCTL_VERIFY_H

/* argv[0] is "verify". Returns the exit status: 0 within the limits, 1 not or an error (one line on stderr), 2 a wrong
 * option. */
int npuctl_verify(int argc, char **argv);

#endif
