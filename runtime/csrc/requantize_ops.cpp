// The operators of the arithmetic of devices, on the CPU and of float32 alone.
#include <cstring>

#include "broadcast.h"
#include "operators.h"
#include "requantize.h"
#include "requantize_normalization.h"

namespace qc {
namespace {

// The inputs of a kernel, which tensors refer to.
class Inputs {
 public:
  Inputs(const ort::Api& api, const ort::KernelContext* context) {
    std::size_t count = 0;
    check(api, api.KernelContext_GetInputCount(context, &count));
    for (std::size_t i = 0; i < count; ++i) list_.emplace_back(api, context, i);
  }

  Shape shape(std::size_t index) const { return list_[index].shape(); }
  Tensor<float> floats(std::size_t index) const { return list_[index].tensor<float>(); }
  Tensor<std::int32_t> integers(std::size_t index) const { return list_[index].tensor<std::int32_t>(); }

  // Three inputs from one on: scale, zero point and limits.
  Grid grid(std::size_t first) const { return {floats(first), integers(first + 1), integers(first + 2)}; }

  // Three inputs from one on: numbers, their scale and their zero point.
  OnGrid on_grid(std::size_t first) const { return {floats(first), floats(first + 1), integers(first + 2)}; }

 private:
  std::vector<Input> list_;
};

// x, the grid, the scale of the input and that of the weight.
struct RequantizeKernel {
  const ort::Api& api;
  const Arithmetic arithmetic;
  const std::int64_t axis;

  RequantizeKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table),
        arithmetic(arithmetic_of(text_attribute(table, info, "arithmetic", "matrix"))),
        axis(integer_attribute(table, info, "axis", 0)) {}

  void compute(ort::KernelContext* context) const {
    const Inputs in(api, context);
    float* const y = output<float>(api, context, 0, in.shape(0));
    requantize(arithmetic, axis, in.floats(0), in.grid(1), in.floats(4), in.floats(5), y,
               session_threads(api, context));
  }
};

// Of two tensors, a and b on their grids, and the grid: calls action(a, b, grid, shape of the result, result,
// threads).
template <class Action>
void on_pair(const ort::Api& api, ort::KernelContext* context,
             std::vector<std::int64_t> (*shape_of)(const Shape&, const Shape&), const Action& action) {
  const Inputs in(api, context);
  const OnGrid a = in.on_grid(0), b = in.on_grid(3);
  const std::vector<std::int64_t> dims = shape_of(a.numbers.shape, b.numbers.shape);
  const Shape shape = {dims.data(), dims.size()};
  action(a, b, in.grid(6), shape, output<float>(api, context, 0, shape), session_threads(api, context));
}

struct RequantizeSumKernel {
  const ort::Api& api;
  const bool subtract;

  RequantizeSumKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), subtract(integer_attribute(table, info, "subtract", 0) != 0) {}

  void compute(ort::KernelContext* context) const {
    on_pair(api, context, broadcast_shape, [&](const auto&... given) { requantize_sum(subtract, given...); });
  }
};

// An operator of two tensors that has no attributes.
template <auto requantize_pair, auto shape_of>
struct RequantizePairKernel {
  const ort::Api& api;

  RequantizePairKernel(const ort::Api& table, const ort::KernelInfo*, ElementType) : api(table) {}

  void compute(ort::KernelContext* context) const { on_pair(api, context, shape_of, requantize_pair); }
};

using RequantizeProductKernel = RequantizePairKernel<requantize_product, broadcast_shape>;
using RequantizeQuotientKernel = RequantizePairKernel<requantize_quotient, broadcast_shape>;
using RequantizeMatMulKernel = RequantizePairKernel<requantize_matmul, matmul_shape>;

// x, the grid, the scale of the input and the slope.
struct RequantizePReluKernel {
  const ort::Api& api;

  RequantizePReluKernel(const ort::Api& table, const ort::KernelInfo*, ElementType) : api(table) {}

  void compute(ort::KernelContext* context) const {
    const Inputs in(api, context);
    float* const y = output<float>(api, context, 0, in.shape(0));
    requantize_prelu(in.floats(0), in.grid(1), in.floats(4), in.floats(5), y, session_threads(api, context));
  }
};

// What the exact operator made, the grid, what it read and the scale of that.
struct RequantizeSoftmaxKernel {
  const ort::Api& api;
  const std::int64_t axis;

  RequantizeSoftmaxKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), axis(integer_attribute(table, info, "axis", -1)) {}

  void compute(ort::KernelContext* context) const {
    const Inputs in(api, context);
    float* const y = output<float>(api, context, 0, in.shape(0));
    requantize_softmax(in.floats(0), in.grid(1), in.floats(4), in.floats(5), axis, y,
                       session_threads(api, context));
  }
};

// The same, then the weight, its scale, the bias and epsilon.
struct RequantizeNormalizationKernel {
  const ort::Api& api;
  const bool centered;

  RequantizeNormalizationKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), centered(integer_attribute(table, info, "centered", 1) != 0) {}

  void compute(ort::KernelContext* context) const {
    const Inputs in(api, context);
    const RowWeights weights = {in.floats(6), in.floats(7), in.floats(8), in.floats(9), centered};
    float* const y = output<float>(api, context, 0, in.shape(0));
    requantize_normalization(in.floats(0), in.grid(1), in.floats(4), in.floats(5), weights, y,
                             session_threads(api, context));
  }
};

// x and the grid.
struct QuantizeInFloat16Kernel {
  const ort::Api& api;
  const bool with_zero_point;

  QuantizeInFloat16Kernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), with_zero_point(integer_attribute(table, info, "with_zero_point", 0) != 0) {}

  void compute(ort::KernelContext* context) const {
    const Inputs in(api, context);
    float* const y = output<float>(api, context, 0, in.shape(0));
    quantize_in_float16(with_zero_point, in.floats(0), in.grid(1), y, session_threads(api, context));
  }
};

// ``inputs`` has a letter for the type of each input.
template <class Kernel>
struct RequantizeOp : TypedOp {
  const char* const name;
  const char* const inputs;

  RequantizeOp(const char* op_type, const char* input_types, const ort::Api& table)
      : TypedOp(ElementType::float32, table), name(op_type), inputs(input_types) {
    use_kernel<Kernel>(*this);
    GetExecutionProviderType = [](const ort::Op*) -> const char* { return nullptr; };  // the CPU's
    GetName = [](const ort::Op* self) { return static_cast<const RequantizeOp*>(self)->name; };
    GetInputTypeCount = [](const ort::Op* self) {
      return std::strlen(static_cast<const RequantizeOp*>(self)->inputs);
    };
    GetInputType = [](const ort::Op* self, std::size_t index) {
      return static_cast<const RequantizeOp*>(self)->inputs[index] == 'f' ? ort::kFloat32 : ort::kInt32;
    };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 1; };
    GetOutputType = [](const ort::Op*, std::size_t) { return ort::kFloat32; };
  }
};

}  // namespace

Operators requantize_operators(const ort::Api& api) {
  Operators operators;
  const auto add = [&](auto op) { operators.push_back(std::make_unique<decltype(op)>(op)); };
  add(RequantizeOp<RequantizeKernel>("Requantize", "ffiiff", api));
  add(RequantizeOp<RequantizeSumKernel>("RequantizeSum", "ffiffifii", api));
  add(RequantizeOp<RequantizeProductKernel>("RequantizeProduct", "ffiffifii", api));
  add(RequantizeOp<RequantizeQuotientKernel>("RequantizeQuotient", "ffiffifii", api));
  add(RequantizeOp<RequantizeMatMulKernel>("RequantizeMatMul", "ffiffifii", api));
  add(RequantizeOp<RequantizePReluKernel>("RequantizePRelu", "ffiiff", api));
  add(RequantizeOp<RequantizeSoftmaxKernel>("RequantizeSoftmax", "ffiiff", api));
  add(RequantizeOp<RequantizeNormalizationKernel>("RequantizeNormalization", "ffiiffffff", api));
  add(RequantizeOp<QuantizeInFloat16Kernel>("QuantizeInFloat16", "ffii", api));
  return operators;
}

}  // namespace qc
