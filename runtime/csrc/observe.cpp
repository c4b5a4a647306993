#include "observe.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "formats.h"
#include "keys.h"

namespace qc {
namespace {

// A task has so many elements at least, and there are so many tasks at most, because each task starts from an
// empty summary and ends by adding it to the whole.
constexpr std::size_t kTaskElements = std::size_t{1} << 17;
constexpr std::size_t kMostTasks = 64;

// Neighbouring elements often fall into the same bin, above all into that of zero, and a processor waits for
// an increment of a counter to finish before it begins the next one of the same counter. Counting in turns in
// several lanes avoids that. The lanes of a bin lie side by side: counters a multiple of 4 KiB apart would be
// taken for the same one by the processor while it reorders loads and stores. They are narrow so that those
// in use fit into the first cache; a slice that is counted must not be so long that one overflows.
using Lane = std::uint16_t;
constexpr std::size_t kLanes = 4;
static_assert(kTaskElements / kLanes <= 0xffff, "a lane could overflow");

// Below so many elements, adding up the lanes takes longer than the waiting.
constexpr std::size_t kWorthLanes = std::size_t{1} << 13;

// Bins of one exponent and sign.
constexpr std::size_t kBlock = 128;

// Lanes that belong to the thread, all zero whenever no summary uses them: to make them anew for every slice
// would take longer than to count.
Lane* zeroed_lanes() {
  thread_local std::vector<Lane> lanes(kLanes * kHistogramBins);
  return lanes.data();
}

// Calls take(first bin, bins), which tells how many elements it found in them, from the largest magnitude
// down to the smallest until all elements are found: most of the bins are of magnitudes too small to occur.
template <class Take>
void take_bins(float largest, std::size_t elements, const Take& take) {
  constexpr std::size_t negative = kHistogramBins / 2;
  elements -= take(0, 1) + take(negative, 1);
  for (std::size_t block = (bits_of(largest) >> 23) + 1; block-- > 0 && elements > 0;)
    elements -= take(block * kBlock, kBlock) + take(negative + block * kBlock, kBlock);
}

// The elements of one slice of the tensor, summarized by one thread.
class Summary {
 public:
  explicit Summary(std::size_t channels)
      : lowest_(channels, kNoExtremes.lowest), highest_(channels, kNoExtremes.highest) {}

  // Makes the summary count bins: in the given histogram at once, or in lanes of its thread.
  void count_in(std::int64_t* histogram) { histogram_ = histogram; }
  void count_in_lanes() { lanes_ = zeroed_lanes(); }

  // Adds contiguous elements of one channel.
  void add(ElementType type, const char* x, std::size_t length, std::size_t channel) {
    Extremes extremes = {lowest_[channel], highest_[channel]};
    nonfinite_ += loops_.extend(type, x, length, extremes);
    lowest_[channel] = extremes.lowest;
    highest_[channel] = extremes.highest;
    if (histogram_ == nullptr && lanes_ == nullptr) return;
    if (type == ElementType::bfloat16)  // the upper half of a float32
      return count_bins(length,
                        [x = reinterpret_cast<const std::uint16_t*>(x)](std::size_t i) { return x[i]; });
    for_each_wide_piece(type, x, length, [this](const float* piece, std::size_t part, std::size_t) {
      count_bins(piece, part);
    });
  }

  // Adds contiguous elements, one for each channel from the given one on.
  void add_one_each(ElementType type, const char* x, std::size_t length, std::size_t channel) {
    for_each_wide_piece(type, x, length, [&](const float* piece, std::size_t part, std::size_t done) {
      nonfinite_ += loops_.extend_each(piece, part, &lowest_[channel + done], &highest_[channel + done]);
      count_bins(piece, part);
    });
  }

  void add(const Summary& other) {
    for (std::size_t i = 0; i < lowest_.size(); ++i) {
      lowest_[i] = std::min(lowest_[i], other.lowest_[i]);
      highest_[i] = std::max(highest_[i], other.highest_[i]);
    }
    nonfinite_ += other.nonfinite_;
  }

  // Adds the lanes, if there are any, to the histogram, and leaves them zero.
  void move_lanes_to(std::int64_t* histogram) {
    if (lanes_ == nullptr) return;
    take_bins(largest(), counted_, [&](std::size_t first, std::size_t bins) {
      Lane* const lanes = lanes_ + first * kLanes;
      std::size_t elements = 0;
      for (std::size_t bin = 0; bin < bins; ++bin) {
        std::uint32_t count = 0;
        for (std::size_t lane = 0; lane < kLanes; ++lane) count += lanes[bin * kLanes + lane];
        histogram[first + bin] += count;
        elements += count;
      }
      if (elements > 0) std::fill_n(lanes, bins * kLanes, 0);
      return elements;
    });
    lanes_ = nullptr;
  }

  // The largest magnitude, which is infinity also if there are NaN.
  float largest() const {
    if (nonfinite_ > 0) return float_of(kInfinityBits);
    float largest = 0.0f;
    for (std::size_t i = 0; i < lowest_.size(); ++i)
      if (lowest_[i] <= highest_[i])
        largest =
            std::max({largest, std::fabs(value_of_key(lowest_[i])), std::fabs(value_of_key(highest_[i]))});
    return largest;
  }

  void write(const Observation& result, std::size_t elements) const {
    for (std::size_t i = 0; i < lowest_.size(); ++i) {
      result.minimum[i] = value_of_key(lowest_[i]);
      result.maximum[i] = value_of_key(highest_[i]);
    }
    *result.nonfinite = nonfinite_;
    *result.count = static_cast<std::int64_t>(elements) - nonfinite_;
  }

 private:
  // Calls visit(elements as float32, how many, how many before).
  template <class Visit>
  void for_each_wide_piece(ElementType type, const char* x, std::size_t length, const Visit& visit) const {
    if (type == ElementType::float32) return visit(reinterpret_cast<const float*>(x), length, 0);
    float piece[kWidenedPiece];
    for (std::size_t done = 0; done < length; done += kWidenedPiece) {
      const std::size_t part = std::min(kWidenedPiece, length - done);
      loops_.widen(type, reinterpret_cast<const std::uint16_t*>(x) + done, piece, part);
      visit(piece, part, done);
    }
  }

  void count_bins(const float* x, std::size_t length) {
    count_bins(length, [x](std::size_t i) { return bits_of(x[i]) >> 16; });
  }

  template <class BinOf>
  void count_bins(std::size_t length, const BinOf& bin_of) {
    if (histogram_ != nullptr) {
      for (std::size_t i = 0; i < length; ++i) ++histogram_[bin_of(i)];
    } else if (lanes_ != nullptr) {
      std::size_t i = 0;
      for (; i + kLanes <= length; i += kLanes)
        for (std::size_t lane = 0; lane < kLanes; ++lane) ++lanes_[bin_of(i + lane) * kLanes + lane];
      // The rest goes on with the lane after the last rest, so that all lanes get the same share.
      for (; i < length; ++i) ++lanes_[bin_of(i) * kLanes + (counted_ + i) % kLanes];
      counted_ += length;
    }
  }

  const ElementLoops& loops_ = element_loops();
  std::vector<std::int32_t> lowest_, highest_;
  std::int64_t nonfinite_ = 0;
  std::int64_t* histogram_ = nullptr;
  Lane* lanes_ = nullptr;
  std::size_t counted_ = 0;  // elements in the lanes
};

// Empties the bins of infinities and NaN.
void clear_nonfinite(std::int64_t* histogram) {
  constexpr std::size_t first = kInfinityBits >> 16, negative = kHistogramBins / 2;
  std::fill(histogram + first, histogram + negative, 0);
  std::fill(histogram + negative + first, histogram + kHistogramBins, 0);
}

// Elements of a tensor as rows, in which each channel has a run of elements.
struct Channels {
  std::size_t number;
  std::size_t run;
};

// Calls visit(first element, elements, first channel) for the elements of [begin, end). Where the run of a
// channel is a single element, the elements of a visit belong to consecutive channels, else to one.
template <class Visit>
void for_each_run(const Channels& channels, std::size_t begin, std::size_t end, const Visit& visit) {
  const std::size_t run = channels.run == 1 ? channels.number : channels.run;
  while (begin < end) {
    const std::size_t length = std::min(run - begin % run, end - begin);
    visit(begin, length, begin / channels.run % channels.number);
    begin += length;
  }
}

void add_slice(Summary& summary, const FloatTensor& x, const Channels& channels, std::size_t begin,
               std::size_t end) {
  for_each_run(channels, begin, end, [&](std::size_t first, std::size_t length, std::size_t channel) {
    const char* const data = static_cast<const char*>(x.data) + first * byte_size(x.type);
    if (channels.run == 1)
      summary.add_one_each(x.type, data, length, channel);
    else
      summary.add(x.type, data, length, channel);
  });
}

}  // namespace

std::size_t observed_channels(const Shape& x, std::int64_t axis) {
  if (axis == -1) return 1;
  if (axis < 0 || axis >= static_cast<std::int64_t>(x.rank))
    throw InvalidArgument("Observe: attribute axis is " + std::to_string(axis) +
                          ", outside a tensor of shape " + x.text() +
                          "; use -1 to observe the whole tensor.");
  return static_cast<std::size_t>(x.dims[axis]);
}

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, const TaskRunner& run) {
  if (result.histogram != nullptr && result.before == nullptr)
    std::fill_n(result.histogram, kHistogramBins, 0);
  if (result.histogram != nullptr && result.before != nullptr && result.before != result.histogram)
    std::copy_n(result.before, kHistogramBins, result.histogram);
  add_observed(x, axis, result, run);
}

float add_observed(const FloatTensor& x, std::int64_t axis, const Observation& result,
                   const TaskRunner& run) {
  const std::size_t count = x.shape.count();
  const std::size_t number = observed_channels(x.shape, axis);
  const Channels channels = {
      number, number == 1 ? count : x.shape.count(static_cast<std::size_t>(axis) + 1, x.shape.rank)};
  std::int64_t* const histogram = result.histogram;

  Summary whole(number);
  std::mutex mutex;
  const std::size_t slice =
      histogram != nullptr ? kTaskElements
                           : std::max({kTaskElements, 4 * number, (count + kMostTasks - 1) / kMostTasks});
  const auto task = [&](std::size_t index) {
    Summary part(number);
    if (histogram != nullptr) count < kWorthLanes ? part.count_in(histogram) : part.count_in_lanes();
    add_slice(part, x, channels, index * slice, std::min(count, (index + 1) * slice));
    const std::lock_guard<std::mutex> lock(mutex);
    whole.add(part);
    part.move_lanes_to(histogram);
  };
  const std::size_t tasks = (count + slice - 1) / slice;
  if (tasks == 1)
    task(0);
  else if (tasks > 1)
    run(tasks, task);
  whole.write(result, count);
  if (histogram != nullptr && *result.nonfinite > 0) clear_nonfinite(histogram);
  return whole.largest();
}

void take_counts(std::int64_t* histogram, float largest, std::int64_t elements,
                 std::vector<BinCount>& counts) {
  std::size_t used = 0;
  take_bins(largest, static_cast<std::size_t>(elements), [&](std::size_t first, std::size_t bins) {
    counts.resize(used + bins);
    std::int64_t found = 0;
    for (std::size_t bin = first; bin < first + bins;
         ++bin) {  // without a branch, which would be guessed wrongly
      const std::int64_t count = histogram[bin];
      counts[used] = {static_cast<std::int64_t>(bin), count};
      used += count != 0;
      found += count;
    }
    if (found > 0) std::fill_n(histogram + first, bins, 0);
    return static_cast<std::size_t>(found);
  });
  counts.resize(used);
}

}  // namespace qc
