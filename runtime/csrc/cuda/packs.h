// Elements that a thread reads or writes at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../elements.h"

namespace qc::cuda {

constexpr std::size_t kPackBytes = 16;

template <ElementType type>
constexpr unsigned kPackElements = kPackBytes / sizeof(Stored<type>);

template <ElementType type>
struct alignas(kPackBytes) Pack {
  Stored<type> elements[kPackElements<type>];
};

QC_EVERYWHERE inline bool is_aligned(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kPackBytes == 0;
}

}  // namespace qc::cuda
