// Writing to memory past the caches, for results that are larger than any of them: an ordinary store first
// reads what it is about to overwrite, and throws something more useful out.
//
// Everything here has internal linkage, because it is compiled once for every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace qc {

// What caches and memory exchange at once.
constexpr std::size_t kLineBytes = 64;

// Results of so many bytes are larger than the last cache of most processors.
constexpr std::size_t kStreamBytes = std::size_t{64} << 20;

// Runs of fewer bytes hold too few whole lines, and each begins and ends within one.
constexpr std::size_t kStreamRun = 1024;

// What will be read is asked for so many bytes ahead, because processors do not look beyond a page.
constexpr std::size_t kStreamAhead = 2048;

static inline bool is_line(const void* place) {
  return reinterpret_cast<std::uintptr_t>(place) % kLineBytes == 0;
}

// Elements before the next line.
template <class Element>
static inline std::size_t elements_to_line(const Element* place) {
  return (kLineBytes - reinterpret_cast<std::uintptr_t>(place) % kLineBytes) / sizeof(Element);
}

// Whether the processor can, and should, write so many bytes past the caches.
static inline bool may_stream([[maybe_unused]] const void* to, [[maybe_unused]] std::size_t bytes) {
#if defined(__SSE2__)
  return bytes >= kStreamBytes && reinterpret_cast<std::uintptr_t>(to) % sizeof(float) == 0;
#else
  return false;
#endif
}

// Copies a line to a line past the caches.
static inline void stream_line(const void* from, void* to) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(from));
#elif defined(__AVX__)
  for (int half = 0; half < 2; ++half)
    _mm256_stream_si256(static_cast<__m256i*>(to) + half,
                        _mm256_load_si256(static_cast<const __m256i*>(from) + half));
#elif defined(__SSE2__)
  for (int part = 0; part < 4; ++part)
    _mm_stream_si128(static_cast<__m128i*>(to) + part,
                     _mm_load_si128(static_cast<const __m128i*>(from) + part));
#else
  __builtin_memcpy(to, from, kLineBytes);
#endif
}

// Makes what was streamed visible to other threads before anything that is stored later.
static inline void finish_stream() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

}  // namespace qc
