#include "definition.h"

#include <cmath>

namespace qc_test {

std::vector<Sharing> ways_to_share(const Dims& dims) {
  std::vector<Sharing> ways = {{"tensor", 0, 0}};
  for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(dims.size()); ++axis) {
    ways.push_back({"channel", axis, 0});
    for (const std::int64_t block : {1, 4, 32}) ways.push_back({"block", axis, block});
  }
  return ways;
}

Dims scale_dims(const Sharing& sharing, const Dims& dims) {
  if (sharing.granularity == "tensor") return {};
  if (sharing.granularity == "channel") return {dims[static_cast<std::size_t>(sharing.axis)]};
  Dims result = dims;
  std::int64_t& n = result[static_cast<std::size_t>(sharing.axis)];
  n = (n + sharing.block_size - 1) / sharing.block_size;
  return result;
}

std::size_t scale_index(const Sharing& sharing, const Dims& dims, std::size_t i) {
  if (sharing.granularity == "tensor") return 0;
  std::size_t index = 0, stride = 1, rest = i;
  for (std::size_t axis = dims.size(); axis-- > 0;) {
    const auto n = static_cast<std::size_t>(dims[axis]);
    const std::size_t place = rest % n;
    rest /= n;
    const bool own = axis == static_cast<std::size_t>(sharing.axis);
    if (sharing.granularity == "channel" && own) return place;
    if (sharing.granularity == "block") {
      const std::size_t block = own ? static_cast<std::size_t>(sharing.block_size) : 1;
      index += place / block * stride;
      stride *= (n + block - 1) / block;
    }
  }
  return index;
}

OwnGrid::OwnGrid(const Dims& scales, std::int32_t lowest, std::int32_t highest)
    : dims(scales), limits({lowest, highest}) {
  const std::size_t count = qc::Shape{dims.data(), dims.size()}.count();
  scale.resize(count);
  zero_point.resize(count);
}

qc::Grid OwnGrid::grid() const {
  static const std::int64_t two = 2;
  const qc::Shape shape = {dims.data(), dims.size()};
  return {{scale.data(), shape}, {zero_point.data(), shape}, {limits.data(), {&two, 1}}};
}

float rounded(const OwnGrid& grid, std::size_t index, qc::Rounding rounding, float x) {
  const float scale = grid.scale[index];
  const auto lowest = static_cast<float>(grid.limits[0] - grid.zero_point[index]);
  const auto highest = static_cast<float>(grid.limits[1] - grid.zero_point[index]);
  float steps = x / scale;
  steps = steps > lowest ? steps : lowest;
  steps = steps < highest ? steps : highest;
  if (rounding == qc::Rounding::half_even) return (std::nearbyint(steps) + 0.0f) * scale;
  if (rounding == qc::Rounding::half_away) return (std::round(steps) + 0.0f) * scale;
  const float above = steps - lowest, whole = std::floor(above);
  return (whole + (above - whole >= 0.5f ? 1.0f : 0.0f) + lowest) * scale;
}

}  // namespace qc_test
