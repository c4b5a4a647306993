// Offers the operators for CUDA to the CPU's execution provider; see cuda_runtime.h.
#include "../../../runtime/csrc/operators.h"

namespace qc {

Operators cpu_operators(const ort::Api& api) {
  Operators operators = cuda_operators(api);
  for (const auto& op : operators)
    op->GetExecutionProviderType = [](const ort::Op*) -> const char* { return nullptr; };
  return operators;
}

}  // namespace qc
