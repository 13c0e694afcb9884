/* The allocator of reuse.c, for memory.c. */
#ifndef TRACECONV_REUSE_H
#define TRACECONV_REUSE_H
#include <stddef.h>

extern PyDataMem_Handler reusing;

/* Serve arrays of so many bytes and more, and keep at most so many of what they leave. */
void reuse_from(size_t least_bytes, size_t most_kept_bytes);

#endif
