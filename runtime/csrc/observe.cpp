#include "observe.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "formats.h"

namespace qc {
namespace {

// A task has so many elements at least, and there are so many tasks at most, because each task starts from an
// empty summary and ends by adding it to the whole.
constexpr std::size_t kTaskElements = std::size_t{1} << 18;
constexpr std::size_t kMostTasks = 64;

// Neighbouring elements often fall into the same bin, and a processor waits for an increment of a counter to
// finish before it begins the next one of the same counter. Counting in turns in several tables avoids that.
constexpr std::size_t kTables = 4;

// Below so many elements, clearing and adding up the tables takes longer than the waiting.
constexpr std::size_t kWorthTables = std::size_t{1} << 16;

// The elements of one slice of the tensor, summarized.
class Summary {
 public:
  explicit Summary(std::size_t channels)
      : lowest_(channels, kNoExtremes.lowest), highest_(channels, kNoExtremes.highest) {}

  // Makes the summary count bins: in the given histogram at once, or in tables of its own.
  void count_in(std::int64_t* histogram) { histogram_ = histogram; }
  void count_in_tables() { tables_.resize(kTables * kHistogramBins); }

  // Adds contiguous elements of one channel.
  void add(const float* x, std::size_t length, std::size_t channel) {
    Extremes extremes = {lowest_[channel], highest_[channel]};
    nonfinite_ += loops_.extend(x, length, extremes);
    lowest_[channel] = extremes.lowest;
    highest_[channel] = extremes.highest;
    count_bins(x, length);
  }

  // Adds contiguous elements, one for each channel from the given one on.
  void add_one_each(const float* x, std::size_t length, std::size_t channel) {
    nonfinite_ += loops_.extend_each(x, length, &lowest_[channel], &highest_[channel]);
    count_bins(x, length);
  }

  void add(const Summary& other) {
    for (std::size_t i = 0; i < lowest_.size(); ++i) {
      lowest_[i] = std::min(lowest_[i], other.lowest_[i]);
      highest_[i] = std::max(highest_[i], other.highest_[i]);
    }
    nonfinite_ += other.nonfinite_;
  }

  void add_tables_to(std::int64_t* histogram) const {
    for (std::size_t table = 0; table < kTables && !tables_.empty(); ++table)
      for (std::size_t bin = 0; bin < kHistogramBins; ++bin) histogram[bin] += tables_[table * kHistogramBins + bin];
  }

  void write(const Observation& result, std::size_t elements) const {
    for (std::size_t i = 0; i < lowest_.size(); ++i) {
      result.minimum[i] = value_of(lowest_[i]);
      result.maximum[i] = value_of(highest_[i]);
    }
    *result.nonfinite = nonfinite_;
    *result.count = static_cast<std::int64_t>(elements) - nonfinite_;
  }

 private:
  void count_bins(const float* x, std::size_t length) {
    if (histogram_ != nullptr) {
      for (std::size_t i = 0; i < length; ++i) ++histogram_[bits_of(x[i]) >> 16];
    } else if (!tables_.empty()) {
      std::uint32_t* tables = tables_.data();
      std::size_t i = 0;
      for (; i + kTables <= length; i += kTables)
        for (std::size_t table = 0; table < kTables; ++table)
          ++tables[table * kHistogramBins + (bits_of(x[i + table]) >> 16)];
      for (; i < length; ++i) ++tables[bits_of(x[i]) >> 16];
    }
  }

  // The float32 of a key; a negative zero becomes zero.
  static float value_of(std::int32_t key) {
    return float_of(static_cast<std::uint32_t>(key ^ ((key >> 31) & 0x7fffffff))) + 0.0f;
  }

  const ElementLoops& loops_ = element_loops();
  std::vector<std::int32_t> lowest_, highest_;
  std::int64_t nonfinite_ = 0;
  std::int64_t* histogram_ = nullptr;
  std::vector<std::uint32_t> tables_;
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

void add_slice(Summary& summary, const FloatTensor& x, const Channels& channels, std::size_t begin, std::size_t end) {
  const ElementLoops& loops = element_loops();
  const auto add = [&](const float* data, std::size_t length, std::size_t channel) {
    if (channels.run == 1)
      summary.add_one_each(data, length, channel);
    else
      summary.add(data, length, channel);
  };
  for_each_run(channels, begin, end, [&](std::size_t first, std::size_t length, std::size_t channel) {
    if (x.type == ElementType::float32) return add(static_cast<const float*>(x.data) + first, length, channel);
    float piece[kWidenedPiece];
    for (std::size_t done = 0; done < length; done += kWidenedPiece) {
      const std::size_t part = std::min(kWidenedPiece, length - done);
      loops.widen(x.type, static_cast<const std::uint16_t*>(x.data) + first + done, piece, part);
      add(piece, part, channels.run == 1 ? channel + done : channel);
    }
  });
}

}  // namespace

std::size_t observed_channels(const Shape& x, std::int64_t axis) {
  if (axis == -1) return 1;
  if (axis < 0 || axis >= static_cast<std::int64_t>(x.rank))
    throw InvalidArgument("Observe: attribute axis is " + std::to_string(axis) + ", outside a tensor of shape " +
                          x.text() + "; use -1 to observe the whole tensor.");
  return static_cast<std::size_t>(x.dims[axis]);
}

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, const TaskRunner& run) {
  const std::size_t count = x.shape.count();
  const std::size_t number = observed_channels(x.shape, axis);
  const Channels channels = {
      number, number == 1 ? count : x.shape.count(static_cast<std::size_t>(axis) + 1, x.shape.rank)};
  std::int64_t* const histogram = result.histogram;
  if (histogram != nullptr) std::fill_n(histogram, kHistogramBins, 0);

  Summary whole(number);
  std::mutex mutex;
  const std::size_t slice = std::max({kTaskElements, 4 * number, (count + kMostTasks - 1) / kMostTasks});
  const auto task = [&](std::size_t index) {
    Summary part(number);
    if (histogram != nullptr) count < kWorthTables ? part.count_in(histogram) : part.count_in_tables();
    add_slice(part, x, channels, index * slice, std::min(count, (index + 1) * slice));
    const std::lock_guard<std::mutex> lock(mutex);
    whole.add(part);
    part.add_tables_to(histogram);
  };
  const std::size_t tasks = (count + slice - 1) / slice;
  if (tasks == 1)
    task(0);
  else if (tasks > 1)
    run(tasks, task);
  whole.write(result, count);
  if (histogram != nullptr) clear_nonfinite(histogram);
}

}  // namespace qc
