// The loops of element_loops.h, written so that compilers vectorize them. The build compiles this file once
// for every instruction set, each time with another QC_INSTRUCTION_SET. Everything but the table at the end
// has internal linkage, and no standard template is used: otherwise the linker could keep a function that was
// compiled for a newer processor and use it everywhere.
#include "element_loops.h"

#include "elements.h"
#include "grids.h"
#include "keys.h"

#if defined(__clang__)
#define QC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define QC_INDEPENDENT _Pragma("GCC ivdep")
#else
#define QC_INDEPENDENT
#endif

namespace qc {
namespace {

#if defined(__FMA__) || defined(__aarch64__)
constexpr bool kFusedMultiplyAdd = true;
#else
constexpr bool kFusedMultiplyAdd = false;  // a function call for each would be slower than a division
#endif

// The same as an IntegerGrid, without a division for each element: a quotient by the rounded reciprocal is
// corrected by its remainder. The first correction brings it so close that it can only round to the wrong side
// if the true quotient lies within 6 * 2^-48, relatively, of the middle between two float32 numbers. Close to a
// tie, where that could change a code, none of those quotients does (test_kernels.py tries all of them). A second
// correction gives the quotient rounded to nearest wherever it lies (P. W. Markstein, "Computation of elementary
// functions on the IBM RISC System/6000 processor", 1990); half_up needs it, as its ties lie elsewhere.
//
// This holds if nothing overflows or loses bits to underflow. So x is cut before, to values that round to the
// outermost codes, and the scale must be of middling size; a quotient that is too small for exact remainders is
// far below half a step.
template <class Grid>
class ByReciprocal {
 public:
  explicit ByReciprocal(const Grid& grid)
      : grid_(grid), reciprocal_(1.0f / grid.scale), low_(grid.lowest * grid.scale), high_(grid.highest * grid.scale) {}

  static bool fits(const Grid& grid) {
    return grid.scale >= 0x1p-80f && grid.scale <= 0x1p+80f && grid.lowest >= -0x1p16f && grid.highest <= 0x1p16f;
  }

  float quantize(float x) const {
    const float within = grid_.cut(x, low_, high_);
    float quotient = corrected(within * reciprocal_, within);
    if constexpr (Grid::kRounding == Rounding::half_up) quotient = corrected(quotient, within);
    return grid_.round(quotient);
  }

 private:
  float corrected(float quotient, float x) const {
    return __builtin_fmaf(__builtin_fmaf(-quotient, grid_.scale, x), reciprocal_, quotient);
  }

  const Grid grid_;
  const float reciprocal_, low_, high_;
};

// y[i] = quantize(x[i], i).
template <ElementType type, bool may_be_nan, class Quantize>
inline void for_each_element(const Stored<type>* x, Stored<type>* y, std::size_t count, const Quantize& quantize) {
  std::size_t begin = 0;
  if constexpr (type == ElementType::float16 && kBlock > 1)
    for (; begin + kBlock <= count; begin += kBlock) {
      float block[kBlock];
      widen_block(x + begin, block);
      QC_INDEPENDENT
      for (std::size_t i = 0; i < kBlock; ++i) block[i] = quantize(block[i], begin + i);
      narrow_block(block, y + begin);
    }
  QC_INDEPENDENT
  for (std::size_t i = begin; i < count; ++i) y[i] = narrowed<type, may_be_nan>(quantize(widened<type>(x[i]), i));
}

template <ElementType type, class Grid>
void quantize_run(const Grid& grid, const Stored<type>* x, Stored<type>* y, std::size_t count) {
  if constexpr (kFusedMultiplyAdd && Grid::kMayMultiply)
    if (ByReciprocal<Grid>::fits(grid)) {
      const ByReciprocal<Grid> fast(grid);
      return for_each_element<type, Grid::kKeepsNan>(x, y, count, [fast](float value, std::size_t) { return fast.quantize(value); });
    }
  for_each_element<type, Grid::kKeepsNan>(x, y, count, [grid](float value, std::size_t) { return grid.quantize(value); });
}

template <ElementType type, class Grid>
void runs(const Rule& rule, const float* scale, const std::int32_t* zero_point, std::size_t run,
          const Stored<type>* x, Stored<type>* y, std::size_t count) {
  for (; count > 0; ++scale, ++zero_point) {
    const std::size_t length = run < count ? run : count;
    quantize_run<type>(Grid(rule, *scale, *zero_point), x, y, length);
    x += length;
    y += length;
    count -= length;
  }
}

template <ElementType type, class Grid>
void each(const Rule& rule, const float* scale, const std::int32_t* zero_point, const Stored<type>* x,
          Stored<type>* y, std::size_t count) {
  const Rule own = rule;
  for_each_element<type, Grid::kKeepsNan>(x, y, count, [=](float value, std::size_t i) {
    return Grid(own, scale[i], zero_point[i]).quantize(value);
  });
}

template <ElementType type>
void quantize_runs_of(const Rule& rule, const float* scale, const std::int32_t* zero_point, std::size_t run,
                      const void* x, void* y, std::size_t count) {
  with_grid(rule, [&](auto kind) {
    runs<type, typename decltype(kind)::Type>(rule, scale, zero_point, run,
                                                       static_cast<const Stored<type>*>(x),
                                                       static_cast<Stored<type>*>(y), count);
  });
}

template <ElementType type>
void quantize_each_of(const Rule& rule, const float* scale, const std::int32_t* zero_point, const void* x, void* y,
                      std::size_t count) {
  with_grid(rule, [&](auto kind) {
    each<type, typename decltype(kind)::Type>(rule, scale, zero_point, static_cast<const Stored<type>*>(x),
                                                       static_cast<Stored<type>*>(y), count);
  });
}

void quantize_runs(const Rule& rule, const float* scale, const std::int32_t* zero_point, std::size_t run,
                   const void* x, void* y, std::size_t count) {
  constexpr auto float32 = quantize_runs_of<ElementType::float32>;
  constexpr auto float16 = quantize_runs_of<ElementType::float16>;
  constexpr auto bfloat16 = quantize_runs_of<ElementType::bfloat16>;
  const auto loop = rule.type == ElementType::float32 ? float32 : rule.type == ElementType::float16 ? float16 : bfloat16;
  loop(rule, scale, zero_point, run, x, y, count);
}

void quantize_each(const Rule& rule, const float* scale, const std::int32_t* zero_point, const void* x, void* y,
                   std::size_t count) {
  constexpr auto float32 = quantize_each_of<ElementType::float32>;
  constexpr auto float16 = quantize_each_of<ElementType::float16>;
  constexpr auto bfloat16 = quantize_each_of<ElementType::bfloat16>;
  const auto loop = rule.type == ElementType::float32 ? float32 : rule.type == ElementType::float16 ? float16 : bfloat16;
  loop(rule, scale, zero_point, x, y, count);
}

void widen(ElementType type, const std::uint16_t* x, float* y, std::size_t count) {
  std::size_t i = 0;
  if (type == ElementType::float16) {
    for (; kBlock > 1 && i + kBlock <= count; i += kBlock) {
      float block[kBlock];
      widen_block(x + i, block);
      std::memcpy(y + i, block, sizeof block);
    }
    for (; i < count; ++i) y[i] = widened<ElementType::float16>(x[i]);
  } else {
    for (; i < count; ++i) y[i] = widened<ElementType::bfloat16>(x[i]);
  }
}

// All ones for infinities and NaN, else zero. Choosing with this mask keeps compilers from making branches.
inline std::int32_t nonfinite_mask(float value) { return -((bits_of(value) & kInfinityBits) == kInfinityBits); }

inline std::int32_t choose(std::int32_t mask, std::int32_t set, std::int32_t unset) {
  return (mask & set) | (~mask & unset);
}

void unite(Extremes& extremes, const Extremes& other) {
  extremes.lowest = other.lowest < extremes.lowest ? other.lowest : extremes.lowest;
  extremes.highest = other.highest > extremes.highest ? other.highest : extremes.highest;
}

// Widens extremes by all elements, finite or not.
void extend_by_all(const float* x, std::size_t count, Extremes& extremes) {
  std::int32_t lowest = extremes.lowest, highest = extremes.highest;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = key_of(x[i]);
    lowest = key < lowest ? key : lowest;
    highest = key > highest ? key : highest;
  }
  extremes = {lowest, highest};
}

std::int64_t extend_by_finite(const float* x, std::size_t count, Extremes& extremes) {
  std::int32_t lowest = extremes.lowest, highest = extremes.highest, nonfinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t mask = nonfinite_mask(x[i]);
    const std::int32_t low = choose(mask, kKeyOfInfinity, key_of(x[i]));
    const std::int32_t high = choose(mask, kKeyOfMinusInfinity, key_of(x[i]));
    lowest = low < lowest ? low : lowest;
    highest = high > highest ? high : highest;
    nonfinite -= mask;
  }
  extremes = {lowest, highest};
  return nonfinite;
}

// Looks at the elements in pieces that fit the first cache: infinities and NaN lie at the two ends of the
// order of keys, so that one look at the extremes of a piece tells whether it has any, and only then is the
// piece read again with care. The next piece is asked for early, because processors do not look beyond a page.
std::int64_t extend(const float* x, std::size_t count, Extremes& extremes) {
  constexpr std::size_t piece = 1024, line = 16;
  std::int64_t nonfinite = 0;
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t length = count - begin < piece ? count - begin : piece;
    for (std::size_t i = 0; i < length; i += line) __builtin_prefetch(x + begin + piece + i);
    Extremes all = {kKeyOfInfinity - 1, kKeyOfMinusInfinity + 1};
    extend_by_all(x + begin, length, all);
    if (all.lowest > kKeyOfMinusInfinity && all.highest < kKeyOfInfinity)
      unite(extremes, all);
    else
      nonfinite += extend_by_finite(x + begin, length, extremes);
  }
  return nonfinite;
}

std::int64_t extend_each(const float* x, std::size_t count, std::int32_t* lowest, std::int32_t* highest) {
  std::int32_t nonfinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t mask = nonfinite_mask(x[i]);
    const std::int32_t low = choose(mask, kKeyOfInfinity, key_of(x[i]));
    const std::int32_t high = choose(mask, kKeyOfMinusInfinity, key_of(x[i]));
    lowest[i] = low < lowest[i] ? low : lowest[i];
    highest[i] = high > highest[i] ? high : highest[i];
    nonfinite -= mask;
  }
  return nonfinite;
}

}  // namespace

#define QC_TEXT_OF(word) #word
#define QC_TEXT(word) QC_TEXT_OF(word)

extern const ElementLoops QC_LOOPS(QC_INSTRUCTION_SET);
const ElementLoops QC_LOOPS(QC_INSTRUCTION_SET) = {
    QC_TEXT(QC_INSTRUCTION_SET), quantize_runs, quantize_each, widen, extend, extend_each,
};

}  // namespace qc
