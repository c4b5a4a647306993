// The operators on the CPU, with the threads of the session.
#include <mutex>

#include "moments.h"
#include "operators.h"

namespace qc {

TaskRunner session_threads(const ort::Api& api, const ort::KernelContext* context) {
  return [&api, context](std::size_t count, const Task& task) {
    struct Job {
      const Task& task;
      std::mutex mutex;
      std::exception_ptr failure;
    } job{task, {}, nullptr};
    const auto call = [](void* data, std::size_t index) {
      Job& shared = *static_cast<Job*>(data);
      try {
        shared.task(index);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(shared.mutex);
        if (!shared.failure) shared.failure = std::current_exception();
      }
    };
    check(api, api.KernelContext_ParallelFor(context, call, count, 0, &job));
    if (job.failure) std::rethrow_exception(job.failure);
  };
}

namespace {

class Cpu {
 public:
  static constexpr const char* kProvider = nullptr;
  static constexpr bool kCountsOnHost = true;

  Cpu(const ort::Api& api, ort::KernelContext* context) : threads_(session_threads(api, context)) {}

  void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid,
                     void* y) const {
    qc::fake_quantize(attributes, x, grid, y, threads_);
  }

  void observe(const FloatTensor& x, std::int64_t axis, const Observation& result) const {
    qc::observe(x, axis, result, threads_);
  }

  float add_observed(const FloatTensor& x, std::int64_t axis, const Observation& result) const {
    return qc::add_observed(x, axis, result, threads_);
  }

 private:
  const TaskRunner threads_;
};

std::vector<std::int64_t> list_attribute(const ort::Api& api, const ort::KernelInfo* info, const char* name) {
  std::size_t size = 0;
  if (ort::Status* missing = api.KernelInfoGetAttributeArray_int64(info, name, nullptr, &size)) {
    api.ReleaseStatus(missing);
    return {};
  }
  std::vector<std::int64_t> list(size);
  check(api, api.KernelInfoGetAttributeArray_int64(info, name, list.data(), &size));
  return list;
}

// The range of a tensor and its moments: sums of elements and of squares; with gram = 1 sums of features and
// of their products, where the features are the channels along an axis or, with kernel_shape, those of
// patches.
struct ObserveMomentsKernel {
  const ort::Api& api;
  const ElementType type;
  const std::int64_t axis;
  const bool gram;
  const Window window;

  ObserveMomentsKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType input_type)
      : api(table),
        type(input_type),
        axis(integer_attribute(table, info, "axis", -1)),
        gram(integer_attribute(table, info, "gram", 0) != 0),
        window{list_attribute(table, info, "kernel_shape"),
               list_attribute(table, info, "strides"),
               list_attribute(table, info, "dilations"),
               list_attribute(table, info, "pads"),
               integer_attribute(table, info, "group", 1),
               text_attribute(table, info, "auto_pad", "NOTSET"),
               integer_attribute(table, info, "transposed", 0) != 0,
               list_attribute(table, info, "output_padding"),
               list_attribute(table, info, "output_shape")} {}

  void compute(ort::KernelContext* context) const {
    const Input input(api, context, 0);
    const FloatTensor x = {input.data(), input.shape(), type};
    const auto channels = static_cast<std::int64_t>(observed_channels(x.shape, axis));
    const std::int64_t one = 1;
    Cpu(api, context)
        .observe(
            x, axis,
            {output<float>(api, context, 0, {&channels, 1}), output<float>(api, context, 1, {&channels, 1}),
             output<std::int64_t>(api, context, 2, {&one, 1}),
             output<std::int64_t>(api, context, 3, {&one, 1}), nullptr});
    std::int64_t* const positions = output<std::int64_t>(api, context, 6, {&one, 1});
    const TaskRunner threads = session_threads(api, context);
    if (!gram) {
      *positions = channels == 0 ? 0 : static_cast<std::int64_t>(x.shape.count()) / channels;
      double* const sums = output<double>(api, context, 4, {&channels, 1});
      return observe_moments(x, axis, sums, output<double>(api, context, 5, {&channels, 1}), threads);
    }
    if (window.kernel.empty() && axis < 0)
      throw InvalidArgument("ObserveMoments: gram needs axis or kernel_shape.");
    const Rows rows = window.kernel.empty() ? Rows(x.shape, axis) : Rows(x.shape, window);
    *positions = static_cast<std::int64_t>(rows.positions());
    const auto features = static_cast<std::int64_t>(rows.groups() * rows.features());
    const auto products = static_cast<std::int64_t>(rows.products());
    double* const sums = output<double>(api, context, 4, {&features, 1});
    observe_products({x}, rows, sums, output<double>(api, context, 5, {&products, 1}), threads);
  }
};

// Only for the CPU: a session on a GPU copies the tensor to it.
struct ObserveMomentsOp : TypedOp {
  ObserveMomentsOp(ElementType input_type, const ort::Api& table) : TypedOp(input_type, table) {
    use_kernel<ObserveMomentsKernel>(*this);
    GetExecutionProviderType = [](const ort::Op*) { return Cpu::kProvider; };
    GetName = [](const ort::Op*) { return "ObserveMoments"; };
    GetInputTypeCount = [](const ort::Op*) -> std::size_t { return 1; };
    GetInputType = [](const ort::Op* self, std::size_t) { return tensor_element(type_of(self)); };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 7; };
    GetOutputType = [](const ort::Op*, std::size_t index) {
      return index < 2 ? ort::kFloat32 : index == 4 || index == 5 ? ort::kFloat64 : ort::kInt64;
    };
  }
};

}  // namespace

Operators cpu_operators(const ort::Api& api) {
  Operators operators = operators_of<Cpu>(api);
  for (const ElementType type : kElementTypes)
    operators.push_back(std::make_unique<ObserveMomentsOp>(type, api));
  for (auto& op : requantize_operators(api)) operators.push_back(std::move(op));
  return operators;
}

}  // namespace qc
