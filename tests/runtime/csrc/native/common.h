// What all tests of the kernels use: expectations, threads, a sequence of random numbers, and tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor.h"

namespace qc_test {

using Dims = std::vector<std::int64_t>;

// How often something was expected.
extern int comparisons;

// Ends the program with exit code 1 and this text unless it holds.
void expect(bool holds, const std::string& what);

// Runs tasks on four threads, in no particular order.
void run_on_threads(std::size_t count, const qc::Task& task);

// A sequence that is the same everywhere.
struct Random {
  std::uint64_t state;

  std::uint32_t next();
  float uniform(float low, float high);
};

constexpr qc::ElementType kElementTypes[] = {qc::ElementType::float32, qc::ElementType::float16,
                                             qc::ElementType::bfloat16};

// The bits of a value in this type, rounded to it.
std::uint32_t encoded(qc::ElementType type, float value);

// A tensor in exactly as many bytes as it needs.
struct Buffer {
  qc::ElementType type;
  Dims dims;
  std::size_t count;
  std::vector<char> bytes;

  Buffer(qc::ElementType element, const Dims& sizes);
  qc::Shape shape() const { return {dims.data(), dims.size()}; }
  qc::FloatTensor tensor() const { return {bytes.data(), shape(), type}; }
  std::uint32_t bits(std::size_t i) const;
  float value(std::size_t i) const;
  void set(std::size_t i, float value);
};

// Of all sizes that matter to loops over vectors and to tasks: none, one, a part of a vector, and more than
// one task.
const std::vector<Dims>& shapes();

// Of ties, other numbers, and what is special.
Buffer sample(qc::ElementType type, const Dims& dims, Random& random);

// The tests, of all kernels of an instruction set or of what is the same in each.
void check_fake_quantize();
void check_large_results();
void check_observe();
void check_moments();
void check_errors();
void check_requantize();
void check_bad_arguments();

}  // namespace qc_test
