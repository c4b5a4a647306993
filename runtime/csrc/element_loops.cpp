// The loops of element_loops.h, written so that compilers vectorize them. The build compiles this file once
// for every instruction set, each time with another QC_INSTRUCTION_SET. Everything but the table at the end
// has internal linkage, and no standard template is used: otherwise the linker could keep a function that was
// compiled for a newer processor and use it everywhere.
#include "element_loops.h"

#include "elements.h"
#include "grids.h"
#include "keys.h"
#include "stream.h"

// All that such a function calls becomes a part of it, so that a known number of elements needs no loop at
// all.
#if !defined(QC_FLAT)
#define QC_FLAT __attribute__((flatten))
#endif

#if defined(__clang__)
#define QC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
// Without the second, a short loop of little work is unrolled before it could become vectors.
#define QC_INDEPENDENT _Pragma("GCC ivdep") _Pragma("GCC unroll 1")
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
// corrected by its remainder. The first correction brings it so close that it can only round to the wrong
// side if the true quotient lies within 6 * 2^-48, relatively, of the middle between two float32 numbers.
// Close to a tie, where that could change a code, none of those quotients does (test_kernels.py tries all of
// them). A second correction gives the quotient rounded to nearest wherever it lies (P. W. Markstein,
// "Computation of elementary functions on the IBM RISC System/6000 processor", 1990); half_up needs it, as
// its ties lie elsewhere.
//
// This holds if nothing overflows or loses bits to underflow. So x is cut before, to values that round to the
// outermost codes, and the scale must be of middling size; a quotient that is too small for exact remainders
// is far below half a step.
template <class Grid>
class ByReciprocal {
 public:
  static constexpr bool kKeepsNan = false;

  explicit ByReciprocal(const Grid& grid)
      : grid_(grid),
        reciprocal_(1.0f / grid.scale),
        low_(grid.lowest * grid.scale),
        high_(grid.highest * grid.scale) {}

  static bool fits(const Grid& grid) {
    return grid.scale >= 0x1p-80f && grid.scale <= 0x1p+80f && grid.lowest >= -0x1p16f &&
           grid.highest <= 0x1p16f;
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
inline void for_each_element(const Stored<type>* x, Stored<type>* y, std::size_t count,
                             const Quantize& quantize) {
  const std::size_t blocks = type == ElementType::float16 && kBlock > 1 ? count / kBlock * kBlock : 0;
  if constexpr (type == ElementType::float16)
    for (std::size_t begin = 0; begin < blocks; begin += kBlock) {
      float block[kBlock];
      widen_block(x + begin, block);
      QC_INDEPENDENT
      for (std::size_t i = 0; i < kBlock; ++i) block[i] = quantize(block[i], begin + i);
      narrow_block(block, y + begin);
    }
  QC_INDEPENDENT
  for (std::size_t i = blocks; i < count; ++i)
    y[i] = narrowed<type, may_be_nan>(quantize(widened<type>(x[i]), i));
}

// The same without i, for bfloat16: an element is the upper half of its float32, so that a pair is taken
// apart and put together within 32 bits. Conversions between vectors of 16 and of 32 bits would take longer.
template <bool may_be_nan, class Quantize>
inline void for_each_pair(const std::uint16_t* x, std::uint16_t* y, std::size_t count,
                          const Quantize& quantize) {
  constexpr auto narrow = narrowed<ElementType::bfloat16, may_be_nan>;
  const std::size_t pairs = count / 2;
  QC_INDEPENDENT
  for (std::size_t i = 0; i < pairs; ++i) {
    std::uint32_t pair;
    std::memcpy(&pair, x + 2 * i, sizeof pair);
    const std::uint32_t first = narrow(quantize(float_of(pair << 16)));
    const std::uint32_t second = narrow(quantize(float_of(pair & 0xffff0000u)));
    pair = second << 16 | first;
    std::memcpy(y + 2 * i, &pair, sizeof pair);
  }
  if (count % 2) y[count - 1] = narrow(quantize(bfloat16_value(x[count - 1])));
}

// Calls loop(first, result, number), which writes so many elements from the first one on, until y is full. If
// y is streamed, whole lines of the cache are written to it past the caches.
template <class Element, class Loop>
inline void in_lines(bool streamed, const Element* x, Element* y, std::size_t count, const Loop& loop) {
  constexpr std::size_t line = kLineBytes / sizeof(Element);
  for (std::size_t begin = 0; begin < count;) {
    std::size_t length = count - begin;
    if (streamed && is_line(y + begin) && length >= line) {
      for (; begin + line <= count; begin += line) {
        alignas(kLineBytes) Element result[line];
        loop(begin, result, line);
        __builtin_prefetch(x + begin + kStreamAhead / sizeof(Element));
        stream_line(result, y + begin);
      }
    } else {
      if (streamed && length >= line) length = elements_to_line(y + begin);
      loop(begin, y + begin, length);
      begin += length;
    }
  }
}

// All elements by one grid.
template <ElementType type, class Grid>
QC_FLAT void quantize_by(const Grid& grid, bool streamed, const Stored<type>* x, Stored<type>* y,
                         std::size_t count) {
  in_lines(streamed, x, y, count, [grid, x](std::size_t first, Stored<type>* result, std::size_t number) {
    if constexpr (type == ElementType::bfloat16)
      for_each_pair<Grid::kKeepsNan>(x + first, result, number,
                                     [grid](float value) { return grid.quantize(value); });
    else
      for_each_element<type, Grid::kKeepsNan>(
          x + first, result, number, [grid](float value, std::size_t) { return grid.quantize(value); });
  });
}

template <ElementType type, class Grid>
void quantize_run(const Grid& grid, bool streamed, const Stored<type>* x, Stored<type>* y,
                  std::size_t count) {
  if constexpr (kFusedMultiplyAdd && Grid::kMayMultiply)
    if (ByReciprocal<Grid>::fits(grid))
      return quantize_by<type>(ByReciprocal<Grid>(grid), streamed, x, y, count);
  quantize_by<type>(grid, streamed, x, y, count);
}

template <ElementType type, class Grid>
void runs(const Rule& rule, const float* scale, const std::int32_t* zero_point, std::size_t run,
          const Stored<type>* x, Stored<type>* y, std::size_t count) {
  for (; count > 0; ++scale, ++zero_point) {
    const std::size_t length = run < count ? run : count;
    quantize_run<type>(Grid(rule, *scale, *zero_point), rule.streamed, x, y, length);
    x += length;
    y += length;
    count -= length;
  }
}

template <ElementType type, class Grid>
QC_FLAT void each(const Rule& rule, const float* scale, const std::int32_t* zero_point, const Stored<type>* x,
                  Stored<type>* y, std::size_t count) {
  const Rule own = rule;
  in_lines(own.streamed, x, y, count, [=](std::size_t first, Stored<type>* result, std::size_t number) {
    for_each_element<type, Grid::kKeepsNan>(x + first, result, number, [=](float value, std::size_t i) {
      return Grid(own, scale[first + i], zero_point[first + i]).quantize(value);
    });
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
void quantize_each_of(const Rule& rule, const float* scale, const std::int32_t* zero_point, const void* x,
                      void* y, std::size_t count) {
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
  const auto loop = rule.type == ElementType::float32   ? float32
                    : rule.type == ElementType::float16 ? float16
                                                        : bfloat16;
  loop(rule, scale, zero_point, run, x, y, count);
}

void quantize_each(const Rule& rule, const float* scale, const std::int32_t* zero_point, const void* x,
                   void* y, std::size_t count) {
  constexpr auto float32 = quantize_each_of<ElementType::float32>;
  constexpr auto float16 = quantize_each_of<ElementType::float16>;
  constexpr auto bfloat16 = quantize_each_of<ElementType::bfloat16>;
  const auto loop = rule.type == ElementType::float32   ? float32
                    : rule.type == ElementType::float16 ? float16
                                                        : bfloat16;
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
inline std::int32_t nonfinite_mask(float value) {
  return -((bits_of(value) & kInfinityBits) == kInfinityBits);
}

inline std::int32_t choose(std::int32_t mask, std::int32_t set, std::int32_t unset) {
  return (mask & set) | (~mask & unset);
}

void unite(Extremes& extremes, const Extremes& other) {
  extremes.lowest = other.lowest < extremes.lowest ? other.lowest : extremes.lowest;
  extremes.highest = other.highest > extremes.highest ? other.highest : extremes.highest;
}

// The order of the elements of a type as integers of the same size; for float32 that of the keys in Extremes.
template <ElementType type>
struct Order {
  using Key = std::int16_t;
  static constexpr Key kMagnitude = 0x7fff, kInfinity = type == ElementType::float16 ? 0x7c00 : 0x7f80;
};
template <>
struct Order<ElementType::float32> {
  using Key = std::int32_t;
  static constexpr Key kMagnitude = 0x7fffffff, kInfinity = kKeyOfInfinity;
};

// From the bits of an element to its key, and back.
template <ElementType type, class Key = typename Order<type>::Key>
inline Key flipped(Key bits) {
  return static_cast<Key>(bits ^ (bits < 0 ? Order<type>::kMagnitude : 0));
}

template <ElementType type>
std::int32_t wide_key(typename Order<type>::Key key) {
  Stored<type> element;
  key = flipped<type>(key);
  std::memcpy(&element, &key, sizeof element);
  return key_of(widened<type>(element));
}

// Widens extremes by the elements if all are finite; else returns false.
template <ElementType type>
bool extend_by_all(const Stored<type>* x, std::size_t count, Extremes& extremes) {
  using Key = typename Order<type>::Key;
  constexpr Key infinity = Order<type>::kInfinity, minus_infinity = -infinity - 1;
  Key lowest = infinity - 1, highest = minus_infinity + 1;
  for (std::size_t i = 0; i < count; ++i) {
    Key bits;
    std::memcpy(&bits, x + i, sizeof bits);
    const Key key = flipped<type>(bits);
    lowest = key < lowest ? key : lowest;
    highest = key > highest ? key : highest;
  }
  if (lowest <= minus_infinity || highest >= infinity) return false;
  unite(extremes, {wide_key<type>(lowest), wide_key<type>(highest)});
  return true;
}

template <ElementType type>
std::int64_t extend_by_finite(const Stored<type>* x, std::size_t count, Extremes& extremes) {
  std::int32_t lowest = extremes.lowest, highest = extremes.highest, nonfinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = widened<type>(x[i]);
    const std::int32_t mask = nonfinite_mask(value);
    const std::int32_t low = choose(mask, kKeyOfInfinity, key_of(value));
    const std::int32_t high = choose(mask, kKeyOfMinusInfinity, key_of(value));
    lowest = low < lowest ? low : lowest;
    highest = high > highest ? high : highest;
    nonfinite -= mask;
  }
  extremes = {lowest, highest};
  return nonfinite;
}

// Looks at the elements in pieces that fit the first cache: infinities and NaN lie at the two ends of the
// order of keys, so that one look at the extremes of a piece tells whether it has any, and only then is the
// piece read again with care. The next piece is asked for early, because processors do not look beyond a
// page.
template <ElementType type>
std::int64_t extend_of(const Stored<type>* x, std::size_t count, Extremes& extremes) {
  constexpr std::size_t piece = 4096 / sizeof(*x), line = 64 / sizeof(*x);
  std::int64_t nonfinite = 0;
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t length = count - begin < piece ? count - begin : piece;
    for (std::size_t i = 0; i < length; i += line) __builtin_prefetch(x + begin + piece + i);
    if (!extend_by_all<type>(x + begin, length, extremes))
      nonfinite += extend_by_finite<type>(x + begin, length, extremes);
  }
  return nonfinite;
}

std::int64_t extend(ElementType type, const void* x, std::size_t count, Extremes& extremes) {
  const auto* const halves = static_cast<const std::uint16_t*>(x);
  if (type == ElementType::float16) return extend_of<ElementType::float16>(halves, count, extremes);
  if (type == ElementType::bfloat16) return extend_of<ElementType::bfloat16>(halves, count, extremes);
  return extend_of<ElementType::float32>(static_cast<const float*>(x), count, extremes);
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

extern const SumLoops QC_JOIN(sums_, QC_INSTRUCTION_SET);
extern const ErrorLoops QC_JOIN(errors_, QC_INSTRUCTION_SET);
extern const ElementLoops QC_LOOPS(QC_INSTRUCTION_SET);
const ElementLoops QC_LOOPS(QC_INSTRUCTION_SET) = {
    QC_TEXT(QC_INSTRUCTION_SET),
    &QC_JOIN(sums_, QC_INSTRUCTION_SET),
    &QC_JOIN(errors_, QC_INSTRUCTION_SET),
    quantize_runs,
    quantize_each,
    widen,
    extend,
    extend_each,
};

}  // namespace qc
