/* Counts which branches of the kernels have run, for gcc's -fsanitize-coverage=trace-pc: loaded before the kernels. */

#include <stdint.h>
#include <string.h>

#define EDGES (1 << 15)

static uint8_t met[EDGES];
static uint8_t known[EDGES];
static uintptr_t previous;

void __sanitizer_cov_trace_pc(void) {
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    uintptr_t edge = (here * UINT64_C(0x9E3779B97F4A7C15)) >> 20;
    met[(edge ^ previous) & (EDGES - 1)] = 1;
    previous = edge >> 1;
}

/* Returns how many edges were met that were not known, and forgets which were met. */
int fuzz_new_edges(void) {
    int fresh = 0;
    uint64_t a, b;
    for (int at = 0; at < EDGES; at += 8) {
        memcpy(&a, met + at, 8);
        if (!a) continue;
        memcpy(&b, known + at, 8);
        if (a & ~b) {
            fresh += __builtin_popcountll(a & ~b);
            b |= a;
            memcpy(known + at, &b, 8);
        }
        memset(met + at, 0, 8);
    }
    previous = 0;
    return fresh;
}
