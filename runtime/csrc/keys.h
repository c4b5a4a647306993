// Float32 values as integers of the same order; see Extremes.
#pragma once

#include "element_loops.h"
#include "formats.h"

namespace qc {

// The magnitude bits of negative numbers are flipped.
QC_EVERYWHERE static inline std::int32_t key_of(float value) {
  const std::int32_t bits = static_cast<std::int32_t>(bits_of(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// The float32 of a key; a negative zero becomes zero.
QC_EVERYWHERE static inline float value_of_key(std::int32_t key) {
  return float_of(static_cast<std::uint32_t>(key ^ ((key >> 31) & 0x7fffffff))) + 0.0f;
}

}  // namespace qc
