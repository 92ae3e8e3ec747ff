/* npuctl tokenize: what tokens does a model make of a text? */
#ifndef DAEMON_NPUCTL_NPUCTL_TOKENIZE_H
#define DAEMON_NPUCTL_NPUCTL_TOKENIZE_H

/* argv[0] is "tokenize". Returns the exit status: 0, 1 an error (one line on stderr), 2 a wrong option. */
int npuctl_tokenize(int argc, char **argv);

#endif
