/* npuctl bench: how fast is a device with a model, and how fast could it be? */
#ifndef DAEMON_NPUCTL_NPUCTL_BENCH_H
#define DAEMON_NPUCTL_NPUCTL_BENCH_H

/* argv[0] is "bench". Returns the exit status: 0, 1 an error (one line on stderr), 2 a wrong option. */
int npuctl_bench(int argc, char **argv);

#endif
