// Writing to memory past the caches, for results that are larger than any of them: an ordinary store first reads
// what it is about to overwrite, and throws something more useful out.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace qc {

constexpr std::size_t kStreamUnit = 16;

// Results of so many bytes are larger than the last cache of most processors.
constexpr std::size_t kStreamBytes = std::size_t{64} << 20;

// So many bytes are computed before they are streamed: few, so that reading and writing alternate quickly. What
// will be read is asked for early, because processors do not look ahead beyond a page.
constexpr std::size_t kStreamPiece = 4096;
constexpr std::size_t kStreamAhead = 4096;

#if defined(__SSE2__)

inline bool may_stream(const void* to, std::size_t bytes) {
  return bytes >= kStreamBytes && reinterpret_cast<std::uintptr_t>(to) % kStreamUnit == 0;
}

// Copies bytes between places that are multiples of kStreamUnit, while the result is computed from source on.
inline void stream(const char* from, char* to, std::size_t bytes, const char* source) {
  for (std::size_t line = 0; line < bytes; line += 64) _mm_prefetch(source + kStreamAhead + line, _MM_HINT_T0);
  std::size_t done = 0;
  for (; done + kStreamUnit <= bytes; done += kStreamUnit)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + done),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + done)));
  for (; done < bytes; ++done) to[done] = from[done];
}

// Makes what was streamed visible to other threads before anything that is stored later.
inline void finish_stream() { _mm_sfence(); }

#else

inline bool may_stream(const void*, std::size_t) { return false; }
inline void stream(const char*, char*, std::size_t, const char*) {}
inline void finish_stream() {}

#endif

}  // namespace qc
