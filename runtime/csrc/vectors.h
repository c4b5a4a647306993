// Vectors of as many numbers as the instruction set takes at once. They are not passed by value, which
// compilers do differently for different instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qc {
namespace {

#if defined(__AVX512F__)
constexpr std::size_t kWidth = 8;
#else
constexpr std::size_t kWidth = 4;
#endif
typedef double Doubles __attribute__((vector_size(kWidth * sizeof(double))));
typedef double Loose
    __attribute__((vector_size(kWidth * sizeof(double)), aligned(sizeof(double)), may_alias));
typedef float Floats __attribute__((vector_size(kWidth * sizeof(float))));
typedef std::int32_t Bits __attribute__((vector_size(kWidth * sizeof(float))));
typedef std::int64_t Longs __attribute__((vector_size(kWidth * sizeof(double))));

}  // namespace
}  // namespace qc
