// The small float formats as arithmetic on float32: conversion from and to 16 bits, and rounding to a format.
//
// Everything here is branch free, so that loops over it are vectorized, and has internal linkage, because
// it is compiled once for every instruction set and the linker must not mix the results. CUDA compiles the
// same functions for the GPU.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define QC_EVERYWHERE __host__ __device__
#else
#define QC_EVERYWHERE
#endif

namespace qc {

QC_EVERYWHERE static inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

QC_EVERYWHERE static inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr std::uint32_t kSignBit = 0x80000000u;
constexpr std::uint32_t kMagnitudeBits = 0x7fffffffu;
constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// Rounds to the nearest multiple of the step that a float format has at this magnitude; ties to even.
//
// Adding 2^23 steps to a non-negative value pushes everything below one step out of the 24 significant bits
// of float32, so that the addition itself rounds as IEEE 754 demands; subtracting brings the value back. The
// step is 2^(exponent - mantissa_bits), and stays the same below the smallest normal number of the format.
// NaN stays NaN. The caller keeps the exponent low enough for 2^23 steps to be finite.
template <int mantissa_bits, int lowest_exponent>
QC_EVERYWHERE static inline float round_to_step(float value) {
  const std::uint32_t sign = bits_of(value) & kSignBit;
  const std::uint32_t magnitude = bits_of(value) & kMagnitudeBits;
  constexpr std::uint32_t lowest_biased = 127 + lowest_exponent;
  const std::uint32_t biased = (magnitude >> 23) > lowest_biased ? (magnitude >> 23) : lowest_biased;
  const float steps = float_of((biased + (23 - mantissa_bits)) << 23);
  return float_of(bits_of((float_of(magnitude) + steps) - steps) | sign);
}

QC_EVERYWHERE static inline float round_to_float16(float value) {
  // Anything from 65520 on rounds to infinity; the cut keeps the arithmetic finite and lets NaN through.
  constexpr float largest = 65504.0f, beyond = 131072.0f;
  float cut = value > beyond ? beyond : value;
  cut = cut < -beyond ? -beyond : cut;
  const float rounded = round_to_step<10, -14>(cut);
  const float infinity = float_of(kInfinityBits | (bits_of(value) & kSignBit));
  return float_of(bits_of(rounded) & kMagnitudeBits) > largest ? infinity : rounded;
}

// The bits of a float32 rounded to nearest even to its upper half; what is below is left over. NaN becomes a
// quiet NaN. All within 32 bits, since vectors that mix sizes are slow.
QC_EVERYWHERE static inline std::uint32_t rounded_to_upper_half(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return (bits & kMagnitudeBits) > kInfinityBits ? bits | 0x400000u : rounded;
}

QC_EVERYWHERE static inline std::uint16_t bfloat16_bits(float value) {
  return static_cast<std::uint16_t>(rounded_to_upper_half(value) >> 16);
}

QC_EVERYWHERE static inline float bfloat16_value(std::uint16_t bits) {
  return float_of(std::uint32_t{bits} << 16);
}

QC_EVERYWHERE static inline float round_to_bfloat16(float value) {
  return float_of(rounded_to_upper_half(value) & 0xffff0000u);
}

// The largest finite values of the 8-bit floats. Their arithmetic saturates.
constexpr float kLargestE4M3FN = 448.0f;
constexpr float kLargestE5M2 = 57344.0f;

QC_EVERYWHERE static inline float round_to_float8e4m3fn(float value) {
  float cut = value > kLargestE4M3FN ? kLargestE4M3FN : value;
  cut = cut < -kLargestE4M3FN ? -kLargestE4M3FN : cut;
  return round_to_step<3, -6>(cut);
}

QC_EVERYWHERE static inline float round_to_float8e5m2(float value) {
  float cut = value > kLargestE5M2 ? kLargestE5M2 : value;
  cut = cut < -kLargestE5M2 ? -kLargestE5M2 : cut;
  return round_to_step<2, -14>(cut);
}

QC_EVERYWHERE static inline float float16_value(std::uint16_t half) {
  const std::uint32_t sign = (std::uint32_t{half} & 0x8000u) << 16;
  const std::uint32_t shifted = (std::uint32_t{half} & 0x7fffu) << 13;
  const std::uint32_t normal = shifted + ((127u - 15u) << 23);
  const std::uint32_t special = shifted + ((255u - 31u) << 23);
  // A subnormal is put behind a leading one worth 2^-14, which is then taken away again.
  const std::uint32_t subnormal = bits_of(float_of(shifted + (113u << 23)) - float_of(113u << 23));
  const std::uint32_t exponent = shifted & (31u << 23);
  std::uint32_t magnitude = normal;
  magnitude = exponent == (31u << 23) ? special : magnitude;
  magnitude = exponent == 0 ? subnormal : magnitude;
  return float_of(magnitude | sign);
}

// Rounds to nearest even; overflow becomes infinity, NaN a quiet NaN.
QC_EVERYWHERE static inline std::uint16_t float16_bits(float value) {
  const std::uint32_t sign = (bits_of(value) & kSignBit) >> 16;
  const std::uint32_t magnitude = bits_of(value) & kMagnitudeBits;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - ((127u - 15u) << 23)) >> 13;
  // Adding 0.5, whose last bit is worth 2^-24, rounds to a multiple of the smallest subnormal.
  const std::uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  std::uint32_t half = normal;
  half = magnitude < (113u << 23) ? subnormal : half;
  half = magnitude >= bits_of(65520.0f) ? 0x7c00u : half;
  half = magnitude > kInfinityBits ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : half;
  return static_cast<std::uint16_t>(half | sign);
}

}  // namespace qc
