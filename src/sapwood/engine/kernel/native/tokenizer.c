/* The tokeniser: gives up at every message until it is written, so that expat reads them all. */
#include "reader.h"

int tokenizer_read(struct reader *reader, struct span message, const struct reader_limits *limits,
                   const struct handlers *handlers, void *consumer) {
    (void)reader, (void)message, (void)limits, (void)handlers, (void)consumer;
    return GAVE_UP;
}
