/* How a request ended: one word for the log, one for /metrics. */
#ifndef DAEMON_REQUEST_OUTCOME_H
#define DAEMON_REQUEST_OUTCOME_H

/* name, in the log, as a label */
#define REQUEST_OUTCOMES(X)                                                                                            \
    X(STOP, "stop", "stop") /* an end-of-generation token or a stop string */                                          \
    X(LENGTH, "length", "length") /* max_tokens or the end of the context */                                           \
    X(EMBEDDED, "embedded", "embedded")                                                                                \
    X(PREFILLED, "prefilled", "prefilled")                                                                             \
    X(CLIENT_GONE, "client gone", "client_gone")                                                                       \
    X(CLIENT_UNREAD, "client did not read", "client_unread")                                                           \
    X(REFUSED, "refused", "refused") /* a mistake of the client */                                                     \
    X(QUEUE_FULL, "queue full", "queue_full")                                                                          \
    X(WAIT_TOO_LONG, "wait too long", "wait_too_long")                                                                 \
    X(TIMED_OUT, "timed out", "timed_out")                                                                             \
    X(CANCELLED, "cancelled", "cancelled") /* the daemon stops */                                                      \
    X(OUT_OF_MEMORY, "out of memory", "out_of_memory")                                                                 \
    X(FAILED, "failed", "failed")

enum request_outcome {
#define REQUEST_OUTCOME_ENUM(name, words, label) OUTCOME_##name,
    REQUEST_OUTCOMES(REQUEST_OUTCOME_ENUM)
#undef REQUEST_OUTCOME_ENUM
    N_REQUEST_OUTCOMES,
};

const char *request_outcome_words(enum request_outcome outcome);
const char *request_outcome_label(enum request_outcome outcome);

#endif
