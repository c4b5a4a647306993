// Chooses the element loops that fit the processor, once.
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "element_loops.h"

namespace qc {

// What every processor of the kind that is built for can run: "neon" on Arm, "baseline" elsewhere.
extern const ElementLoops QC_LOOPS(QC_BASELINE);
#if defined(QC_HAS_AVX2)
extern const ElementLoops loops_avx2;
#endif
#if defined(QC_HAS_AVX512)
extern const ElementLoops loops_avx512;
#endif

namespace {

// Best first. Only compilers with __builtin_cpu_supports (GCC, Clang) are asked to build more than the
// baseline.
std::vector<const ElementLoops*> usable_loops() {
  std::vector<const ElementLoops*> usable;
#if defined(QC_HAS_AVX512)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    usable.push_back(&loops_avx512);
#endif
#if defined(QC_HAS_AVX2)
  // Every processor with AVX2 has F16C as well, for which older compilers know no name here.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) usable.push_back(&loops_avx2);
#endif
  usable.push_back(&QC_LOOPS(QC_BASELINE));
  return usable;
}

const std::vector<const ElementLoops*>& usable() {
  static const std::vector<const ElementLoops*> loops = usable_loops();
  return loops;
}

std::atomic<const ElementLoops*>& chosen() {
  static std::atomic<const ElementLoops*> loops{usable().front()};
  return loops;
}

}  // namespace

const ElementLoops& element_loops() { return *chosen().load(std::memory_order_relaxed); }

const char* instruction_sets() {
  static const std::string names = [] {
    std::string text;
    for (const ElementLoops* loops : usable()) text += (text.empty() ? "" : ",") + std::string(loops->name);
    return text;
  }();
  return names.c_str();
}

bool use_instruction_set(const char* name) {
  for (const ElementLoops* loops : usable()) {
    if (std::strcmp(loops->name, name) != 0) continue;
    chosen().store(loops);
    return true;
  }
  return false;
}

}  // namespace qc
