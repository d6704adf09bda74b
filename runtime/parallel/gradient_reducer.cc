#include "runtime/parallel/gradient_reducer.h"

#include <algorithm>
#include <array>
#include <utility>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

constexpr std::size_t kTotals = 3;

std::array<float, kTotals> pack(const StepTotals& totals) {
  return {static_cast<float>(totals.samples), static_cast<float>(totals.loss),
          static_cast<float>(totals.stop_votes)};
}

StepTotals unpack(std::span<const float> packed) {
  return {packed[0], packed[1], packed[2]};
}

}  // namespace

GradientReducer::GradientReducer(Communicator& world, std::span<float> gradients,
                                 std::vector<GradientRange> ranges, Options options)
    : world_(world), gradients_(gradients), bucket_of_(ranges.size()) {
  std::size_t limit = options.first_bucket_bytes;
  for (std::size_t i = ranges.size(); i-- > 0;) {
    const GradientRange& range = ranges[i];
    const std::size_t end = range.offset + range.count;
    const bool fits =
        !buckets_.empty() && (buckets_.back().end - range.offset) * sizeof(float) <= limit;
    if (!fits) {
      if (!buckets_.empty()) limit = options.bucket_bytes;
      buckets_.push_back({.begin = range.offset, .end = end});
    }
    buckets_.back().begin = range.offset;
    ++buckets_.back().ranges;
    bucket_of_[i] = buckets_.size() - 1;
  }
  // A model without parameters still has totals.
  if (buckets_.empty()) buckets_.emplace_back();
  first_.resize(buckets_[0].end - buckets_[0].begin + kTotals);
}

GradientReducer::~GradientReducer() {
  (void)wait_for_all();
}

void GradientReducer::begin(bool synchronise, const StepTotals& local) {
  totals_.samples += local.samples;
  totals_.loss += local.loss;
  totals_.stop_votes += local.stop_votes;
  exchanging_ = synchronise && world_.size() > 1;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.ranges;
}

void GradientReducer::mark_ready(std::size_t index) {
  if (!exchanging_) return;
  --buckets_[bucket_of_[index]].missing;
  // Buckets leave in the same order on every rank, whatever order they are filled in.
  while (in_flight_.size() < buckets_.size() && buckets_[in_flight_.size()].missing == 0)
    launch_next();
}

void GradientReducer::launch_next() {
  const std::size_t index = in_flight_.size();
  const Bucket& bucket = buckets_[index];
  std::span<float> values = gradients_.subspan(bucket.begin, bucket.end - bucket.begin);
  if (index == 0) {
    const auto totals = pack(totals_);
    std::copy(values.begin(), values.end(), first_.begin());
    std::copy(totals.begin(), totals.end(), first_.end() - kTotals);
    values = first_;
  }
  in_flight_.push_back(world_.start_all_reduce(values, ReduceOp::kSum));
}

Status GradientReducer::wait_for_all() {
  Status first_error;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    Status status = in_flight_[i].wait();
    if (!status.ok() && first_error.ok())
      first_error = status.within(fmt::format("gradient bucket {} of {}", i + 1, buckets_.size()));
  }
  in_flight_.clear();
  return first_error;
}

Result<StepTotals> GradientReducer::finish() {
  StepTotals totals = std::exchange(totals_, {});
  if (std::exchange(exchanging_, false)) {
    totals_ = totals;
    while (in_flight_.size() < buckets_.size()) launch_next();
    totals_ = {};
    DLAUNCH_RETURN_IF_ERROR(wait_for_all());
    totals = unpack(std::span(first_).last(kTotals));
    std::copy(first_.begin(), first_.end() - kTotals,
              gradients_.begin() + static_cast<std::ptrdiff_t>(buckets_[0].begin));
  }
  if (totals.samples > 0) {
    const auto scale = static_cast<float>(1.0 / totals.samples);
    for (float& gradient : gradients_) gradient *= scale;
  }
  return totals;
}

}  // namespace dlaunch
