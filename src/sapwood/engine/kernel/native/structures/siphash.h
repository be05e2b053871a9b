/* SipHash-1-3, a keyed hash for names and values that come from strangers.

   Whoever does not know the key cannot choose strings that collide, so the tables stay fast whatever messages
   hold. One compression round and three at the end, as in CPython, Rust and Ruby. */
#ifndef SAPWOOD_SIPHASH_H
#define SAPWOOD_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash_key {
    uint64_t k0, k1;
};

static inline uint64_t sip_rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = sip_rotate(v[1], 13) ^ v[0];
    v[3] = sip_rotate(v[3], 16) ^ v[2];
    v[0] = sip_rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = sip_rotate(v[1], 17) ^ v[2];
    v[3] = sip_rotate(v[3], 21) ^ v[0];
    v[2] = sip_rotate(v[2], 32);
}

/* Eight bytes, little-endian on every machine: packs carry no hashes, so native order would do as well. */
static inline uint64_t sip_word(const unsigned char *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
}

static inline uint64_t siphash(const struct hash_key *key, const void *data, size_t length) {
    const unsigned char *bytes = data;
    uint64_t v[4] = {key->k0 ^ 0x736f6d6570736575u, key->k1 ^ 0x646f72616e646f6du,
                     key->k0 ^ 0x6c7967656e657261u, key->k1 ^ 0x7465646279746573u};
    size_t left = length;
    for (; left >= 8; left -= 8, bytes += 8) {
        uint64_t word = sip_word(bytes);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)length << 56;
    for (size_t i = 0; i < left; i++) last |= (uint64_t)bytes[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
