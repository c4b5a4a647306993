// The operators on the CPU, with the threads of the session.
#include <mutex>

#include "operators.h"

namespace qc {
namespace {

// Runs tasks on the threads of the session. The first exception is kept and thrown again here, because it may
// not pass through the thread pool.
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

class Cpu {
 public:
  static constexpr const char* kProvider = nullptr;
  static constexpr bool kCountsOnHost = true;

  Cpu(const ort::Api& api, ort::KernelContext* context) : threads_(session_threads(api, context)) {}

  void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y) const {
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

}  // namespace

Operators cpu_operators(const ort::Api& api) { return operators_of<Cpu>(api); }

}  // namespace qc
