// What the arithmetic of devices has in common: codes of a grid, and elements in tasks.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "fake_quantize.h"

namespace qc {

constexpr std::size_t kTaskElements = std::size_t{1} << 14;

inline void in_tasks(std::size_t count, const TaskRunner& run,
                     const std::function<void(std::size_t, std::size_t)>& part) {
  const std::size_t tasks = (count + kTaskElements - 1) / kTaskElements;
  if (tasks <= 1) return part(0, count);
  run(tasks,
      [&](std::size_t task) { part(task * kTaskElements, std::min(count, (task + 1) * kTaskElements)); });
}

inline float one_number(const char* name, const Tensor<float>& given) {
  if (given.shape.count() != 1)
    throw InvalidArgument(std::string("Requantize: ") + name + " has shape " + given.shape.text() +
                          " but one for the tensor is needed.");
  const float number = given.data[0];
  if (std::isfinite(number) && number >= 0) return number;
  throw InvalidArgument(std::string("Requantize: ") + name + " is " + std::to_string(number) +
                        " but must be finite and not below zero.");
}

// The code less the zero point of a number of a grid; of infinity NaN, as it has none.
inline double steps_of(float number, double scale) {
  return std::isfinite(number) ? std::nearbyint(number / scale) : NAN;
}

// The nearest of those of a grid of uint8; of NaN one of them.
inline std::int32_t whole_steps(double steps) {
  constexpr double most = 255;
  return static_cast<std::int32_t>(std::min(std::max(-most, steps), most));
}

// The grid of a result.
struct Codes {
  double scale, zero_point, lowest, highest;

  explicit Codes(const Grid& grid) : scale(one_number("scale", grid.scale)) {
    if (grid.zero_point.shape.count() != 1 || grid.limits.shape.count() != 2)
      throw InvalidArgument("Requantize: one zero_point and two limits are needed.");
    zero_point = grid.zero_point.data[0];
    lowest = grid.limits.data[0];
    highest = grid.limits.data[1];
  }

  float number(double code) const {
    code = code > lowest ? code : lowest;  // NaN becomes the lowest
    return static_cast<float>(std::min(code, highest) - zero_point) * static_cast<float>(scale);
  }
};

}  // namespace qc
