// The entry point by which ONNX Runtime takes the operators into a session.
#include <mutex>

#include "operators.h"

namespace qc {
namespace {

// The operators of one ONNX Runtime in this process. They are never freed, because sessions refer to them and
// may live until the process ends.
struct Registration {
  const ort::Api& api;
  ort::OpDomain* domain = nullptr;
  std::vector<Operators> operators;

  explicit Registration(const ort::Api& table) : api(table) {
    check(api, api.CreateCustomOpDomain("qc", &domain));
    add(cpu_operators(api));
#if defined(QC_WITH_CUDA)
    add(cuda_operators(api));
#endif
  }

  void add(Operators some) {
    for (const auto& op : some) check(api, api.CustomOpDomain_Add(domain, op.get()));
    operators.push_back(std::move(some));
  }
};

ort::OpDomain* domain_of(const ort::Api& api) {
  static std::mutex mutex;
  static auto& registrations = *new std::vector<std::unique_ptr<Registration>>;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& registration : registrations)
    if (&registration->api == &api) return registration->domain;
  registrations.push_back(std::make_unique<Registration>(api));
  return registrations.back()->domain;
}

ort::Status* too_old(const ort::ApiBase& base) {
  const std::string message = std::string("qc needs ONNX Runtime ") + ort::kRuntimeVersion +
                              " or newer but this is " + base.GetVersionString() +
                              "; upgrade it with: pip install --upgrade onnxruntime";
  return base.GetApi(1)->CreateStatus(ort::kFail, message.c_str());
}

}  // namespace
}  // namespace qc

QC_EXPORT qc::ort::Status* RegisterCustomOps(qc::ort::SessionOptions* options, const qc::ort::ApiBase* base) {
  const qc::ort::Api* api = base->GetApi(qc::ort::kApiVersion);
  if (api == nullptr) return qc::too_old(*base);
  return qc::guarded(*api, [&] { qc::check(*api, api->AddCustomOpDomain(options, qc::domain_of(*api))); });
}
