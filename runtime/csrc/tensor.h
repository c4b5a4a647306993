// What the operators are given: tensors, and a way to run tasks side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

#include "element_loops.h"

// Marks the functions that the library offers to others.
#define QC_EXPORT extern "C" __attribute__((visibility("default")))

namespace qc {

// An input that does not fit; the text is one sentence for the user.
struct InvalidArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Shape {
  const std::int64_t* dims;
  std::size_t rank;

  std::size_t count(std::size_t first, std::size_t last) const {
    std::size_t product = 1;
    for (std::size_t i = first; i < last; ++i) product *= static_cast<std::size_t>(dims[i]);
    return product;
  }
  std::size_t count() const { return count(0, rank); }

  std::string text() const {
    std::string list;
    for (std::size_t i = 0; i < rank; ++i) list += (i ? ", " : "") + std::to_string(dims[i]);
    return "(" + list + (rank == 1 ? ",)" : ")");
  }
};

template <class Element>
struct Tensor {
  const Element* data;
  Shape shape;
};

// A tensor of floats of one of three types.
struct FloatTensor {
  const void* data;
  Shape shape;
  ElementType type;
};

inline std::size_t byte_size(ElementType type) { return type == ElementType::float32 ? 4 : 2; }

// Runs task(0) ... task(count - 1), in any order and possibly at the same time.
using Task = std::function<void(std::size_t)>;
using TaskRunner = std::function<void(std::size_t count, const Task& task)>;

inline void run_in_sequence(std::size_t count, const Task& task) {
  for (std::size_t i = 0; i < count; ++i) task(i);
}

// float16 and bfloat16 are processed through a float32 copy of this many elements at a time.
constexpr std::size_t kWidenedPiece = 1024;

}  // namespace qc
