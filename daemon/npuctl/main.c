/* npuctl: npud's tools, one subcommand each. */
#include <stdio.h>
#include <string.h>

#include "daemon/npuctl/npuctl_bench.h"
#include "daemon/npuctl/npuctl_devices.h"
#include "daemon/npuctl/npuctl_tokenize.h"
#include "daemon/npuctl/npuctl_verify.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit status */
    const char *what;
};

static const struct command commands[] = {
    {"bench", npuctl_bench, "time a model's steps on a device"},
    {"devices", npuctl_devices, "list the OpenCL devices and what npud would use of each"},
    {"tokenize", npuctl_tokenize, "show the tokens of a text"},
    {"verify", npuctl_verify, "compare a device with the reference"},
};

enum {
    N_COMMANDS = sizeof commands / sizeof commands[0],
};

static void print_help(void)
{
    fputs("usage: npuctl COMMAND [options]\n", stdout);
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].what);
    fputs("npuctl COMMAND --help tells the options of a command; npuctl --version the version.\n", stdout);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (name == NULL) {
        fputs("npuctl: a command is missing (see npuctl --help)\n", stderr);
        return 2;
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (strcmp(name, "--help") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        puts("npuctl " NPUD_VERSION);
        return 0;
    }
    fprintf(stderr, "npuctl: unknown command '%.100s'; commands are", name);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : "", commands[i].name);
    fputs(" (see npuctl --help)\n", stderr);
    return 2;
}
