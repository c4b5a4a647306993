// The kernels for NVIDIA GPUs. They equal those of the CPU bit for bit (fake_quantize.h, observe.h), but for
// the handling of values that do not fit: all data, also that of the grid, is in the memory of the device,
// and nothing waits for it.
#pragma once

#include "../fake_quantize.h"
#include "../observe.h"

namespace qc::cuda {

// A stream of CUDA, of which headers of CUDA know more.
using Stream = void*;

// Throws InvalidArgument if shapes do not fit. Elements become NaN whose scale is not finite and above zero;
// and, for integer formats, all elements if the limits are not in order, and those whose zero point is too
// far from the limits to be counted in float32. A scale tensor whose first element is zero switches the
// quantizer off, and must fit the shape too.
void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y,
                   Stream stream);

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, Stream stream);

}  // namespace qc::cuda
