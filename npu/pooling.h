/* How the hidden states of a text's tokens become one vector. */
#ifndef NPU_POOLING_H
#define NPU_POOLING_H

enum pooling {
    POOLING_NONE, /* they do not; of a model: its file does not say how */
    POOLING_MEAN, /* of all tokens */
    POOLING_LAST, /* that of the last token, the one that has seen all others */
};

#endif
