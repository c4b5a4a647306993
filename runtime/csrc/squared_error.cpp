#include "squared_error.h"

#include <algorithm>

namespace qc {

void squared_error(const QuantizerAttributes& attributes, const Tensor<float>& x, const Grid& grid,
                   float shift, float* errors) {
  check_grid_shapes(attributes, grid);
  const Layout layout = layout_of(attributes, x.shape, grid.scale.shape);
  const ErrorLoops& loops = *element_loops().errors;
  const Rule rule = {ElementType::float32, attributes.format, attributes.rounding, grid.limits.data[0],
                     grid.limits.data[1]};
  std::fill_n(errors, grid.scale.shape.count(), 0.0f);
  const std::size_t count = x.shape.count();
  // Channels along the last axis have runs of one element: a row is added at once.
  const bool each = !layout.shared || layout.run == 1;
  const std::size_t length = layout.shared ? layout.row : layout.run;
  for (std::size_t begin = 0; begin < count; begin += length) {
    const std::size_t run = begin % layout.row / layout.run;
    const std::size_t at =
        begin / layout.row * layout.scales_of_row + (layout.shared ? 0 : run / layout.repeat * layout.run);
    const float* const scale = grid.scale.data + at;
    const std::int32_t* const zero_point = grid.zero_point.data + at;
    if (each)
      loops.add_each(rule, shift, scale, zero_point, x.data + begin, length, errors + at);
    else
      loops.add_runs(rule, shift, scale, zero_point, layout.run, x.data + begin, length, errors + at);
  }
}

}  // namespace qc
