// Shapes of what is computed of two tensors, and where their elements lie.
#pragma once

#include <algorithm>
#include <vector>

#include "tensor.h"

namespace qc {

// The shape that two broadcast to. Throws InvalidArgument if they do not.
inline std::vector<std::int64_t> broadcast_shape(const Shape& a, const Shape& b) {
  std::vector<std::int64_t> shape(std::max(a.rank, b.rank), 1);
  for (const Shape& one : {a, b})
    for (std::size_t i = 0; i < one.rank; ++i) {
      std::int64_t& length = shape[shape.size() - one.rank + i];
      if (length != 1 && one.dims[i] != 1 && length != one.dims[i])
        throw InvalidArgument("Requantize: shapes " + a.text() + " and " + b.text() + " do not broadcast.");
      if (one.dims[i] != 1) length = one.dims[i];
    }
  return shape;
}

// The shape of a matrix product. Throws InvalidArgument if there is none, or if one has fewer than 2
// dimensions.
inline std::vector<std::int64_t> matmul_shape(const Shape& a, const Shape& b) {
  const bool fits = a.rank > 1 && b.rank > 1 && a.dims[a.rank - 1] == b.dims[b.rank - 2];
  if (!fits)
    throw InvalidArgument("Requantize: no matrix product of shapes " + a.text() + " and " + b.text() + ".");
  std::vector<std::int64_t> shape = broadcast_shape({a.dims, a.rank - 2}, {b.dims, b.rank - 2});
  shape.insert(shape.end(), {a.dims[a.rank - 2], b.dims[b.rank - 1]});
  return shape;
}

// How far an operand moves on along each dimension of the result; 0 where it is repeated.
inline std::vector<std::size_t> strides_in(const Shape& shape, const Shape& result) {
  std::vector<std::size_t> strides(result.rank, 0);
  std::size_t stride = 1;
  for (std::size_t i = 0; i < shape.rank; ++i) {
    const auto length = static_cast<std::size_t>(shape.dims[shape.rank - 1 - i]);
    if (length != 1) strides[result.rank - 1 - i] = stride;
    stride *= length;
  }
  return strides;
}

// Where the element of a result lies in an operand.
inline std::size_t place_of(std::size_t index, const Shape& result, const std::vector<std::size_t>& strides) {
  std::size_t place = 0;
  for (std::size_t i = result.rank; i-- > 0;) {
    const auto length = static_cast<std::size_t>(result.dims[i]);
    place += index % length * strides[i];
    index /= length;
  }
  return place;
}

}  // namespace qc
