#include "runtime/parallel/gradient_reducer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {

GradientReducer::GradientReducer(Communicator& world, std::span<float> gradients,
                                 std::vector<GradientRange> ranges, Options options)
    : world_(world),
      gradients_(gradients),
      ranges_(std::move(ranges)),
      options_(std::move(options)),
      order_(options_.order),
      plain_steps_(options_.plain_steps),
      used_(ranges_.size()),
      last_used_(ranges_.size()) {
  check_options();
  std::vector<std::size_t> backwards(ranges_.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0U);
  plan(order_.empty() ? backwards : order_);
}

/// What would leave gradients unsummed.
void GradientReducer::check_options() const {
  const auto demand = [](bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument("GradientReducer: " + what);
  };
  std::size_t end = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const GradientRange& range = ranges_[i];
    demand(range.rows > 0 && range.count % range.rows == 0,
           fmt::format("range {} of {} elements has {} rows", i, range.count, range.rows));
    demand(range.offset >= end,
           fmt::format("range {} begins at {}, before {}", i, range.offset, end));
    demand(range.offset <= gradients_.size() && range.count <= gradients_.size() - range.offset,
           fmt::format("range {} of {} elements at {} exceeds the {} gradients", i, range.count,
                       range.offset, gradients_.size()));
    end = range.offset + range.count;
  }
  demand(order_.empty() || is_order_of(order_, ranges_.size()),
         fmt::format("order is no order of {} ranges", ranges_.size()));
  demand(options_.power_sgd_rank > 0, "power_sgd_rank is 0");
  demand(
      options_.exchange != GradientExchange::kShard ||
          options_.parameters.size() == gradients_.size(),
      fmt::format("{} parameters for {} gradients", options_.parameters.size(), gradients_.size()));
}

void GradientReducer::plan(std::span<const std::size_t> order) {
  // One rank sends nothing. All in one bucket are the fewest kernels for the optimizer.
  constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
  buckets_ = plan_buckets(ranges_, order,
                          world_.size() > 1 ? options_.limits : BucketLimits{kNoLimit, kNoLimit});
  bucket_of_.assign(ranges_.size(), 0);
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    for (const std::size_t range : buckets_[bucket].ranges) bucket_of_[range] = bucket;
  make_exchange();
}

GradientExchange GradientReducer::exchange_now() const {
  if (order_.empty() || world_.size() == 1) return GradientExchange::kAllReduce;
  if (options_.exchange == GradientExchange::kShard) return options_.exchange;
  return plain_steps_ > 0 ? GradientExchange::kAllReduce : options_.exchange;
}

void GradientReducer::make_exchange() {
  ExchangeContext context{world_, gradients_, [this]() -> Result<double> {
                            Result<StepTotals> totals = wait_for_totals();
                            if (!totals.ok()) return totals.status();
                            return totals->samples;
                          }};
  switch (exchange_now()) {
    case GradientExchange::kAllReduce:
      exchange_ = make_all_reduce_exchange(std::move(context), buckets_);
      break;
    case GradientExchange::kShard:
      exchange_ = make_reduce_scatter_exchange(std::move(context), buckets_, options_.parameters);
      break;
    case GradientExchange::kFloat16:
      exchange_ = make_half_exchange(std::move(context), buckets_, DType::kF16);
      break;
    case GradientExchange::kBFloat16:
      exchange_ = make_half_exchange(std::move(context), buckets_, DType::kBF16);
      break;
    case GradientExchange::kPowerSgd:
      exchange_ =
          make_power_sgd_exchange(std::move(context), buckets_, ranges_, options_.power_sgd_rank);
      break;
  }
}

std::vector<FlatSpan> GradientReducer::updated_here() const {
  std::vector<FlatSpan> spans;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    spans.push_back(exchange_->summed(bucket));
  return spans;
}

Result<StepTotals> GradientReducer::exchange_totals(const StepTotals& local) {
  totals_ = local;
  totals_known_ = true;
  if (world_.size() == 1) return totals_;
  start_totals();
  return wait_for_totals();
}

void GradientReducer::begin(bool synchronise, const StepTotals& local) {
  if (!totals_known_) {
    totals_.samples += local.samples;
    totals_.loss += local.loss;
    totals_.stop_votes += local.stop_votes;
  }
  ready_.assign(ranges_.size(), false);
  exchanging_ = synchronise && world_.size() > 1;
  if (!exchanging_) return;
  started_ = 0;
  missing_.clear();
  for (const Bucket& bucket : buckets_) missing_.push_back(bucket.ranges.size());
  if (!totals_known_) start_totals();
}

void GradientReducer::start_totals() {
  // Whether a range is used is known for sure only when backward has ended, so a change is told
  // with the totals of the next step.
  sums_ = {totals_.samples, totals_.loss, totals_.stop_votes, use_changed_ ? 1.0 : 0.0};
  sums_work_.set(0, world_.start_all_reduce(sums_));
}

void GradientReducer::mark_ready(std::size_t index) {
  // A bucket would leave before its other ranges are final, and the range be in two of them later.
  if (index >= ready_.size() || ready_[index])
    throw std::logic_error(fmt::format("GradientReducer: range {} of {} is marked {}", index,
                                       ranges_.size(),
                                       index < ready_.size() ? "a second time since begin()"
                                       : ready_.empty()      ? "before begin()"
                                                             : "and does not exist"));
  ready_[index] = true;
  used_[index] = 1;
  if (!exchanging_) return;
  if (order_.empty()) arrivals_.push_back(index);
  --missing_[bucket_of_[index]];
  exchange_->advance();
  // Buckets leave in the same order on every rank, whatever order they are filled in.
  while (started_ < buckets_.size() && missing_[started_] == 0) exchange_->start(started_++);
}

Result<StepTotals> GradientReducer::totals() {
  if (!exchanging_ && world_.size() > 1)
    return Status(StatusCode::kInvalidArgument,
                  "the last micro-batch of this step was not begun as one that synchronises: its "
                  "gradients are this rank's alone");
  if (!exchanging_) return totals_;
  while (started_ < buckets_.size()) exchange_->start(started_++);
  return wait_for_totals();
}

Result<StepTotals> GradientReducer::wait_for_totals() {
  if (Status status = sums_work_.wait(0); !status.ok())
    sums_status_ = status.within("totals of the step");
  DLAUNCH_RETURN_IF_ERROR(sums_status_);
  return StepTotals{.samples = sums_[0], .loss = sums_[1], .stop_votes = sums_[2]};
}

Status GradientReducer::finish(const Update& update, const std::function<void(double)>& summed) {
  Result<StepTotals> result = totals();
  DLAUNCH_RETURN_IF_ERROR(result.status());
  totals_ = {};
  totals_known_ = false;
  const double samples = result->samples;
  const auto hand_out = [&](std::size_t bucket) {
    if (samples == 0) return;
    update(exchange_->summed(bucket), 1 / samples);
    if (exchanging_) exchange_->updated(bucket);
  };
  const bool settled = !exchanging_ || !order_.empty();
  const bool one_by_one = settled && !summed;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    if (exchanging_) DLAUNCH_RETURN_IF_ERROR(wait_for(bucket));
    if (one_by_one) hand_out(bucket);
  }
  if (!settled) DLAUNCH_RETURN_IF_ERROR(settle_order());
  if (!one_by_one) {
    if (summed && samples > 0) summed(1 / samples);
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) hand_out(bucket);
  }
  DLAUNCH_RETURN_IF_ERROR(exchange_->finish());
  if (plain_steps_ > 0 && --plain_steps_ == 0) make_exchange();
  return note_unused();
}

Status GradientReducer::finish_repeated() {
  totals_ = {};
  totals_known_ = false;
  exchanging_ = world_.size() > 1;
  used_ = last_used_;
  return note_unused();
}

Status GradientReducer::wait_for(std::size_t bucket) {
  return exchange_->wait(bucket).within(
      fmt::format("gradient bucket {} of {}", bucket + 1, buckets_.size()));
}

/// Buckets as rank 0 would have liked them in the step that ends.
Status GradientReducer::settle_order() {
  std::vector<std::int64_t> order(arrivals_.begin(), arrivals_.end());
  for (std::size_t range = ranges_.size(); range-- > 0;)
    if (!ready_[range]) order.push_back(static_cast<std::int64_t>(range));
  DLAUNCH_RETURN_IF_ERROR(world_.broadcast(order, 0).within("order of gradients"));
  order_.assign(order.begin(), order.end());
  arrivals_ = {};
  plan(order_);
  return {};
}

/// Finds out which ranges are unused, if that has changed on any rank, and forgets the marks.
Status GradientReducer::note_unused() {
  ready_.clear();
  const bool ask = exchanging_ ? sums_[3] > 0 : world_.size() == 1 && use_changed_;
  exchanging_ = false;
  use_changed_ = used_ != known_used_;
  if (ask) {
    std::vector<std::uint8_t> everybody(used_.size() * static_cast<std::size_t>(world_.size()));
    DLAUNCH_RETURN_IF_ERROR(world_.all_gather(used_, everybody).within("unused parameters"));
    unused_.clear();
    for (std::size_t i = 0; i < everybody.size(); ++i)
      if (everybody[i] == 0)
        unused_.push_back({static_cast<int>(i / used_.size()), i % used_.size()});
    known_used_ = used_;
    use_changed_ = false;
  }
  last_used_ = used_;
  std::ranges::fill(used_, std::uint8_t{0});
  return {};
}

}  // namespace dlaunch
