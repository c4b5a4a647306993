// The kernels as plain C functions, for callers without ONNX Runtime (runtime/native/kernels.py through
// ctypes). Functions return 0, or 1 after writing one sentence to error. Those that only Python calls are
// declared nowhere else.
#pragma once

#include <cstdint>

#include "tensor.h"

extern "C" {

struct QcTensor {
  const void* data;
  const std::int64_t* dims;
  std::int64_t rank;
};

struct QcQuantizer {
  const char* granularity;
  std::int64_t axis;
  std::int64_t block_size;
  const char* rounding;
  const char* format;
};

// As qc::Window: lists are of one number for each axis of the kernel, pads of two; output_shape may be null.
// A kernel without axes stands for the channels along channel_axis.
struct QcFeatures {
  std::int64_t axes, channel_axis, group, transposed;
  const char* auto_pad;
  const std::int64_t *kernel, *strides, *dilations, *pads, *output_padding, *output_shape;
};

struct QcError {
  char text[512];
};
}

QC_EXPORT int qc_fake_quantize(const QcTensor* x, const char* type, const QcQuantizer* quantizer,
                               const QcTensor* scale, const QcTensor* zero_point, const QcTensor* limits,
                               void* y, QcError* error);

// histogram may be null.
QC_EXPORT int qc_observe(const QcTensor* x, const char* type, std::int64_t axis, float* minimum,
                         float* maximum, std::int64_t* count, std::int64_t* nonfinite,
                         std::int64_t* histogram, QcError* error);
