// What it costs to round numbers to integer grids: sums of squared errors, for the search of the best ones.
#pragma once

#include "fake_quantize.h"

namespace qc {

// For each scale of the grid the sum of the squared errors of the elements that have it, in float32; errors
// has room for as many as there are scales. The grid lies shift steps higher than its codes say. Throws
// InvalidArgument if the grid does not fit.
void squared_error(const QuantizerAttributes& attributes, const Tensor<float>& x, const Grid& grid,
                   float shift, float* errors);

}  // namespace qc
