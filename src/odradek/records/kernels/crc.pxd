# cython: language_level=3
# The sums of `checksums`, in C: by the processor's own instruction where it has one, else by tables.
#
#     |  stream a  |  stream b  |  stream c  |  rest |      three streams side by side, as each step waits for the one before
#     what a has become after a stream of zeros, ^ b; what that has become, ^ c
#
#     a step: 8 bytes by the processor's own instruction, or what each of them becomes once those after it have passed
#
# Source: the polynomials as Kafka's Crc32C and java.util.zip.CRC32 have them; that a CRC is linear makes the rest.

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__)
    #include <cpuid.h>
    #elif defined(__aarch64__) && defined(__linux__)
    #include <sys/auxv.h>
    #endif

    enum { ODRADEK_CRC32C, ODRADEK_CRC32 };
    static const uint32_t odradek_crc_polynomials[2] = {0x82F63B78, 0xEDB88320};
    // [sum][k][b]: what byte b has become once k more bytes have passed.
    static uint32_t odradek_crc_tables[2][8][256];

    // The lengths of streams, as powers of two: short ones for small batches.
    enum { ODRADEK_CRC_LENGTHS = 3 };
    static const int odradek_crc_lengths[ODRADEK_CRC_LENGTHS] = {12, 10, 7};
    // [sum][length][k][b]: what byte k of a sum, with the value b, has become once a stream of zeros has passed.
    static uint32_t odradek_crc_shifts[2][ODRADEK_CRC_LENGTHS][4][256];
    static int odradek_crc_has_instruction[2];

    #if defined(__x86_64__)
    #define ODRADEK_CRC_INSTRUCTION(kind, sum, word) __asm__("crc32q %1, %0" : "+r"(sum) : "r"(word))
    static void odradek_crc_find_instructions(void) {
        unsigned eax, ebx, ecx, edx;
        // Not by __builtin_cpu_supports: clang's finds nothing where it is linked with another library than its own.
        odradek_crc_has_instruction[ODRADEK_CRC32C] = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && ecx & bit_SSE4_2;
    }
    #elif defined(__aarch64__)
    #define ODRADEK_CRC_INSTRUCTION(kind, sum, word) do { \
        if ((kind) == ODRADEK_CRC32C) \
            __asm__(".arch_extension crc\\n\\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word)); \
        else \
            __asm__(".arch_extension crc\\n\\tcrc32x %w0, %w0, %x1" : "+r"(sum) : "r"(word)); \
    } while (0)
    static void odradek_crc_find_instructions(void) {
    #if defined(__linux__)
        int found = !!(getauxval(AT_HWCAP) & 1 << 7);  // HWCAP_CRC32
    #else
        int found = 1;
    #endif
        odradek_crc_has_instruction[ODRADEK_CRC32C] = odradek_crc_has_instruction[ODRADEK_CRC32] = found;
    }
    #else
    #define ODRADEK_CRC_INSTRUCTION(kind, sum, word) (void)0
    static void odradek_crc_find_instructions(void) {}
    #endif

    static uint32_t odradek_crc_apply(const uint32_t* becomes, uint32_t bits) {
        uint32_t sum = 0;
        for (int bit = 0; bit < 32; bit++)
            if (bits >> bit & 1) sum ^= becomes[bit];
        return sum;
    }

    static void odradek_crc_fill(void) {
        for (int kind = 0; kind < 2; kind++) {
            uint32_t (*table)[256] = odradek_crc_tables[kind];
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint32_t sum = byte;
                for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? odradek_crc_polynomials[kind] : 0);
                table[0][byte] = sum;
            }
            for (int k = 1; k < 8; k++)
                for (int byte = 0; byte < 256; byte++)
                    table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 255];
            // What each bit becomes after one byte of zeros; squared, after 2, 4, 8 ... bytes.
            uint32_t becomes[32], squared[32];
            for (int bit = 0; bit < 32; bit++) becomes[bit] = bit < 8 ? table[0][1 << bit] : (uint32_t)1 << (bit - 8);
            for (int log2 = 0; log2 <= odradek_crc_lengths[0]; log2++) {
                for (int length = 0; length < ODRADEK_CRC_LENGTHS; length++)
                    for (int k = 0; odradek_crc_lengths[length] == log2 && k < 4; k++)
                        for (uint32_t byte = 0; byte < 256; byte++)
                            odradek_crc_shifts[kind][length][k][byte] = odradek_crc_apply(becomes, byte << 8 * k);
                for (int bit = 0; bit < 32; bit++) squared[bit] = odradek_crc_apply(becomes, becomes[bit]);
                memcpy(becomes, squared, sizeof becomes);
            }
        }
        odradek_crc_find_instructions();
    }

    static inline __attribute__((always_inline)) uint64_t odradek_crc_step(
        int kind, int by_instruction, uint64_t sum, const uint8_t* p
    ) {
        const uint32_t (*table)[256] = (const uint32_t (*)[256])odradek_crc_tables[kind];
        uint64_t word;
        memcpy(&word, p, 8);
        if (by_instruction) {
            ODRADEK_CRC_INSTRUCTION(kind, sum, word);
            return sum;
        }
        word ^= sum;
        return table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255]
            ^ table[4][word >> 24 & 255] ^ table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255]
            ^ table[1][word >> 48 & 255] ^ table[0][word >> 56];
    }

    static inline uint64_t odradek_crc_shift(int kind, int length, uint64_t sum) {
        const uint32_t (*shift)[256] = (const uint32_t (*)[256])odradek_crc_shifts[kind][length];
        return shift[0][sum & 255] ^ shift[1][sum >> 8 & 255] ^ shift[2][sum >> 16 & 255] ^ shift[3][sum >> 24 & 255];
    }

    static inline __attribute__((always_inline)) uint32_t odradek_crc_sum(
        int kind, int by_instruction, uint32_t before, const uint8_t* p, size_t size
    ) {
        uint64_t a = (uint32_t)~before, b, c;
        for (int length = 0; length < ODRADEK_CRC_LENGTHS; length++) {
            size_t stream = (size_t)1 << odradek_crc_lengths[length];
            for (; size >= 3 * stream; p += 3 * stream, size -= 3 * stream) {
                b = c = 0;
                for (size_t at = 0; at < stream; at += 8) {
                    a = odradek_crc_step(kind, by_instruction, a, p + at);
                    b = odradek_crc_step(kind, by_instruction, b, p + stream + at);
                    c = odradek_crc_step(kind, by_instruction, c, p + 2 * stream + at);
                }
                a = odradek_crc_shift(kind, length, odradek_crc_shift(kind, length, a) ^ b) ^ c;
            }
        }
        for (; size >= 8; p += 8, size -= 8) a = odradek_crc_step(kind, by_instruction, a, p);
        for (; size; p++, size--) a = a >> 8 ^ odradek_crc_tables[kind][0][(a ^ *p) & 255];
        return (uint32_t)~a;
    }

    static uint32_t odradek_crc_by_tables(int kind, uint32_t before, const uint8_t* p, size_t size) {
        return odradek_crc_sum(kind, 0, before, p, size);
    }

    static uint32_t odradek_crc32c(uint32_t before, const uint8_t* p, size_t size) {
        if (odradek_crc_has_instruction[ODRADEK_CRC32C]) return odradek_crc_sum(ODRADEK_CRC32C, 1, before, p, size);
        return odradek_crc_by_tables(ODRADEK_CRC32C, before, p, size);
    }

    static uint32_t odradek_crc32(uint32_t before, const uint8_t* p, size_t size) {
        if (odradek_crc_has_instruction[ODRADEK_CRC32]) return odradek_crc_sum(ODRADEK_CRC32, 1, before, p, size);
        return odradek_crc_by_tables(ODRADEK_CRC32, before, p, size);
    }
    """
    int ODRADEK_CRC32C
    void odradek_crc_fill() noexcept nogil
    uint32_t odradek_crc_by_tables(int kind, uint32_t before, const uint8_t* p, size_t size) noexcept nogil
    uint32_t odradek_crc32c(uint32_t before, const uint8_t* p, size_t size) noexcept nogil
    uint32_t odradek_crc32(uint32_t before, const uint8_t* p, size_t size) noexcept nogil
