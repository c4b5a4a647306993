// Elements of the three float types as float32, and back: one at a time, in loops that compilers vectorize,
// or a block at a time where the conversion is an instruction that compilers do not know how to vectorize.
//
// Everything here has internal linkage, because it is compiled once for every instruction set and the linker
// must not mix the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "element_loops.h"
#include "formats.h"

namespace qc {

template <ElementType type>
struct Elements {
  using Stored = std::uint16_t;
};
template <>
struct Elements<ElementType::float32> {
  using Stored = float;
};
template <ElementType type>
using Stored = typename Elements<type>::Stored;

template <ElementType type>
QC_EVERYWHERE static inline float widened(Stored<type> x) {
  if constexpr (type == ElementType::float32) return x;
  if constexpr (type == ElementType::bfloat16) return bfloat16_value(x);
#if defined(__aarch64__) && !defined(__CUDA_ARCH__)
  __fp16 half;
  std::memcpy(&half, &x, sizeof half);
  return half;
#else
  return float16_value(x);
#endif
}

// Rounds to nearest even. What is never NaN needs fewer steps.
template <ElementType type, bool may_be_nan>
QC_EVERYWHERE static inline Stored<type> narrowed(float y) {
  if constexpr (type == ElementType::float32) return y;
  if constexpr (type == ElementType::bfloat16 && may_be_nan) return bfloat16_bits(y);
  if constexpr (type == ElementType::bfloat16)
    return static_cast<std::uint16_t>((bits_of(y) + 0x7fffu + ((bits_of(y) >> 16) & 1u)) >> 16);
#if defined(__aarch64__) && !defined(__CUDA_ARCH__)
  const __fp16 half = y;
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
#else
  return float16_bits(y);
#endif
}

// NaN stays NaN.
QC_EVERYWHERE static inline float clamped(float x, float minimum, float maximum) {
  const float cut = x < minimum ? minimum : x;
  return cut > maximum ? maximum : cut;
}

// float16 in blocks of one vector. A block lives in an array that compilers keep in a register.
#if defined(__AVX512F__)

constexpr std::size_t kBlock = 16;
// All elements. The functions without a mask make GCC warn of their undefined source.
constexpr __mmask16 kAll = 0xffff;

static inline void widen_block(const std::uint16_t* x, float (&block)[kBlock]) {
  const __m512 wide = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  std::memcpy(block, &wide, sizeof wide);
}
static inline void narrow_block(const float (&block)[kBlock], std::uint16_t* y) {
  __m512 wide;
  std::memcpy(&wide, block, sizeof wide);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(y),
                      _mm512_maskz_cvtps_ph(kAll, wide, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(__F16C__)

constexpr std::size_t kBlock = 8;

static inline void widen_block(const std::uint16_t* x, float (&block)[kBlock]) {
  const __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  std::memcpy(block, &wide, sizeof wide);
}
static inline void narrow_block(const float (&block)[kBlock], std::uint16_t* y) {
  __m256 wide;
  std::memcpy(&wide, block, sizeof wide);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT));
}

#else

constexpr std::size_t kBlock = 1;  // elements are converted one at a time

static inline void widen_block(const std::uint16_t* x, float (&block)[kBlock]) {
  *block = widened<ElementType::float16>(*x);
}
static inline void narrow_block(const float (&block)[kBlock], std::uint16_t* y) {
  *y = narrowed<ElementType::float16, true>(*block);
}

#endif

}  // namespace qc
