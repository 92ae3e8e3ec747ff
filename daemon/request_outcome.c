#include "daemon/request_outcome.h"

static const struct {
    const char *words, *label;
} outcomes[] = {
#define REQUEST_OUTCOME_ROW(name, words, label) {words, label},
    REQUEST_OUTCOMES(REQUEST_OUTCOME_ROW)
#undef REQUEST_OUTCOME_ROW
};

const char *request_outcome_words(enum request_outcome outcome)
{
    return outcomes[outcome].words;
}

const char *request_outcome_label(enum request_outcome outcome)
{
    return outcomes[outcome].label;
}
