// PowerSGD (Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019), with error feedback and warm start.
//
// A gradient that is a matrix M [rows, columns], summed over the ranks, is sent as two thin ones:
//
//   M <- M + e                      what earlier steps left out
//   P = sum over ranks of M Q       all-reduce 1; Q is that of the step before
//   P <- orthonormal columns of P
//   Q = sum over ranks of M^T P     all-reduce 2
//   e <- M - P (own M^T P)^T        the ranks' e add up to what is left out now
//   M <- P Q^T
//
// The error is kept as a mean over samples and taken times the number of samples of the step in
// which it is made good, so that a short last batch of an epoch does not get more than its share.
#include <algorithm>
#include <random>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "runtime/parallel/bucket_exchange.h"
#include "runtime/parallel/low_rank.h"
#include "runtime/parallel/works.h"

namespace dlaunch {
namespace {

using low_rank::Extent;

/// A gradient that is compressed.
struct Matrix {
  Extent extent;
  std::size_t gradient = 0;  // its first element in the flat array
  std::size_t error = 0;     // in errors_
  std::size_t p = 0;         // in sent_
  std::size_t q = 0;         // in factors_

  std::size_t size() const { return extent.rows * extent.columns; }
  std::size_t p_size() const { return extent.rows * extent.rank; }
  std::size_t q_size() const { return extent.columns * extent.rank; }
};

/// What is sent as it is: neighbours that are no matrices, or too small.
struct Plain {
  FlatSpan span;
  std::size_t sent = 0;  // in sent_
};

struct CompressedBucket {
  FlatSpan span;
  std::vector<Matrix> matrices;
  std::vector<Plain> plain;
  FlatSpan sent;     // of sent_: the P of all matrices, then what is plain
  FlatSpan factors;  // of factors_: the Q of all matrices
};

class PowerSgdExchange final : public BucketExchange {
 public:
  PowerSgdExchange(ExchangeContext context, const std::vector<Bucket>& buckets,
                   std::span<const GradientRange> ranges, std::size_t rank);

  void start(std::size_t index) override;
  void advance() override;
  Status wait(std::size_t index) override;
  FlatSpan summed(std::size_t index) const override { return buckets_[index].span; }
  ExchangeMemory memory() const override;
  Status remember(const ExchangeMemory& memory) override;

 private:
  std::vector<const Matrix*> matrices() const;
  void add_range(CompressedBucket& bucket, const GradientRange& range, std::size_t rank);
  void send_factors(std::size_t index);
  void randomise(const Matrix& matrix, std::size_t column);

  float* gradient(const Matrix& matrix) { return context_.gradients.data() + matrix.gradient; }
  float* p_of(const Matrix& matrix) { return sent_.data() + matrix.p; }
  float* q_of(const Matrix& matrix) { return factors_.data() + matrix.q; }

  ExchangeContext context_;
  std::vector<CompressedBucket> buckets_;
  std::vector<float> errors_;       // of all matrices; means over samples
  std::vector<float> sent_;         // what all-reduce 1 sums
  std::vector<float> factors_;      // what all-reduce 2 sums; kept for the next step
  std::uint32_t random_state_ = 1;  // the same on all ranks
  double samples_ = 0;              // of the step, over all ranks
  std::size_t with_factors_ = 0;    // buckets whose all-reduce 2 was started
  Status failure_;                  // of an all-reduce 1 that advance() has seen
  Works first_;
  Works second_;
};

PowerSgdExchange::PowerSgdExchange(ExchangeContext context, const std::vector<Bucket>& buckets,
                                   std::span<const GradientRange> ranges, std::size_t rank)
    : context_(std::move(context)), first_(buckets.size()), second_(buckets.size()) {
  std::size_t sent = 0;
  std::size_t factors = 0;
  for (const Bucket& bucket : buckets) {
    CompressedBucket& made = buckets_.emplace_back();
    made.span = bucket.span;
    for (const std::size_t index : bucket.ranges) add_range(made, ranges[index], rank);
    made.sent.begin = sent;
    made.factors.begin = factors;
    for (Matrix& matrix : made.matrices) {
      matrix.p = std::exchange(sent, sent + matrix.p_size());
      matrix.q = std::exchange(factors, factors + matrix.q_size());
    }
    for (Plain& plain : made.plain) plain.sent = std::exchange(sent, sent + plain.span.size());
    made.sent.end = sent;
    made.factors.end = factors;
  }
  sent_.resize(sent);
  factors_.resize(factors);
  for (const CompressedBucket& bucket : buckets_)
    for (const Matrix& matrix : bucket.matrices)
      for (std::size_t k = 0; k < matrix.extent.rank; ++k) randomise(matrix, k);
}

/// In the order of gradients, which does not depend on how these are cut into buckets.
std::vector<const Matrix*> PowerSgdExchange::matrices() const {
  std::vector<const Matrix*> all;
  for (const CompressedBucket& bucket : buckets_)
    for (const Matrix& matrix : bucket.matrices) all.push_back(&matrix);
  std::ranges::sort(all, {}, &Matrix::gradient);
  return all;
}

ExchangeMemory PowerSgdExchange::memory() const {
  ExchangeMemory memory{.errors = std::vector<float>(context_.gradients.size()),
                        .factors = {},
                        .random = random_state_};
  for (const Matrix* matrix : matrices()) {
    std::copy_n(errors_.data() + matrix->error, matrix->size(),
                memory.errors.data() + matrix->gradient);
    const float* const q = factors_.data() + matrix->q;
    memory.factors.insert(memory.factors.end(), q, q + matrix->q_size());
  }
  return memory;
}

Status PowerSgdExchange::remember(const ExchangeMemory& memory) {
  if (memory.errors.size() != context_.gradients.size() || memory.factors.size() != factors_.size())
    return Status(
        StatusCode::kMismatch,
        fmt::format("power_sgd: errors of {} gradients and {} factors cannot serve {} and {}",
                    memory.errors.size(), memory.factors.size(), context_.gradients.size(),
                    factors_.size()));
  random_state_ = memory.random;
  const float* q = memory.factors.data();
  for (const Matrix* matrix : matrices()) {
    std::copy_n(memory.errors.data() + matrix->gradient, matrix->size(),
                errors_.data() + matrix->error);
    std::copy_n(q, matrix->q_size(), factors_.data() + matrix->q);
    q += matrix->q_size();
  }
  return {};
}

void PowerSgdExchange::add_range(CompressedBucket& bucket, const GradientRange& range,
                                 std::size_t rank) {
  const Extent extent{.rows = range.rows, .columns = range.count / range.rows, .rank = rank};
  // Both all-reduces together should move less than half of the matrix.
  const bool pays = 2 * (extent.rows + extent.columns) * rank < extent.rows * extent.columns &&
                    rank <= extent.rows && rank <= extent.columns;
  if (pays) {
    bucket.matrices.push_back(
        {.extent = extent, .gradient = range.offset, .error = errors_.size()});
    errors_.resize(errors_.size() + range.count);
    return;
  }
  bucket.plain.push_back({.span = {range.offset, range.offset + range.count}});
}

/// Another direction to look for what the matrix has besides its other ones.
void PowerSgdExchange::randomise(const Matrix& matrix, std::size_t column) {
  float* const q = q_of(matrix) + column * matrix.extent.columns;
  std::minstd_rand random(random_state_);
  for (std::size_t i = 0; i < matrix.extent.columns; ++i) {
    random_state_ = static_cast<std::uint32_t>(random());
    q[i] = static_cast<float>(random_state_) / static_cast<float>(std::minstd_rand::max()) - 0.5F;
  }
}

void PowerSgdExchange::start(std::size_t index) {
  if (index == 0) {
    with_factors_ = 0;
    const Result<double> samples = context_.samples();
    samples_ = samples.ok() ? *samples : 0;  // whoever asked for the totals gets the error
  }
  if (samples_ == 0) return;  // all gradients are zeros; the errors wait for better times
  const CompressedBucket& bucket = buckets_[index];
  for (const Matrix& matrix : bucket.matrices) {
    low_rank::add(matrix.size(), static_cast<float>(samples_), errors_.data() + matrix.error,
                  gradient(matrix));
    low_rank::multiply(matrix.extent, gradient(matrix), q_of(matrix), p_of(matrix));
  }
  for (const Plain& plain : bucket.plain)
    std::copy_n(context_.gradients.data() + plain.span.begin, plain.span.size(),
                sent_.data() + plain.sent);
  first_.set(index, context_.world.start_all_reduce(
                        std::span(sent_).subspan(bucket.sent.begin, bucket.sent.size())));
}

void PowerSgdExchange::advance() {
  while (failure_.ok() && with_factors_ < buckets_.size() && first_.done(with_factors_)) {
    failure_ = first_.wait(with_factors_).within("power_sgd, P");
    if (failure_.ok()) send_factors(with_factors_++);
  }
}

void PowerSgdExchange::send_factors(std::size_t index) {
  const CompressedBucket& bucket = buckets_[index];
  for (const Matrix& matrix : bucket.matrices) {
    const Extent& extent = matrix.extent;
    low_rank::orthonormalise(extent.rows, extent.rank, p_of(matrix));
    low_rank::multiply_transposed(extent, gradient(matrix), p_of(matrix), q_of(matrix));
    low_rank::residual(extent, gradient(matrix), p_of(matrix), q_of(matrix),
                       static_cast<float>(1 / samples_), errors_.data() + matrix.error);
  }
  if (bucket.matrices.empty()) return;
  // In a lane of its own: when this bucket gets here, relative to the first all-reduces of later
  // ones, differs from rank to rank.
  second_.set(index, context_.world.start_all_reduce(
                         std::span(factors_).subspan(bucket.factors.begin, bucket.factors.size()),
                         ReduceOp::kSum, Algorithm::kAuto, Priority::kHigh));
}

Status PowerSgdExchange::wait(std::size_t index) {
  if (samples_ == 0) return {};
  DLAUNCH_RETURN_IF_ERROR(failure_);
  // Later buckets' second all-reduces are to be under way, too, while this one is waited for.
  while (with_factors_ <= index || (second_.goes_on(index) && with_factors_ < buckets_.size())) {
    DLAUNCH_RETURN_IF_ERROR(first_.wait(with_factors_).within("power_sgd, P"));
    send_factors(with_factors_++);
  }
  advance();
  DLAUNCH_RETURN_IF_ERROR(second_.wait(index).within("power_sgd, Q"));
  const CompressedBucket& bucket = buckets_[index];
  for (const Matrix& matrix : bucket.matrices) {
    const Extent& extent = matrix.extent;
    low_rank::expand(extent, p_of(matrix), q_of(matrix), gradient(matrix));
    for (std::size_t k = 0; k < extent.rank; ++k) {
      const float* const q = q_of(matrix) + k * extent.columns;
      if (std::all_of(q, q + extent.columns, [](float value) { return value == 0; }))
        randomise(matrix, k);
    }
  }
  for (const Plain& plain : bucket.plain)
    std::copy_n(sent_.data() + plain.sent, plain.span.size(),
                context_.gradients.data() + plain.span.begin);
  return {};
}

}  // namespace

std::unique_ptr<BucketExchange> make_power_sgd_exchange(ExchangeContext context,
                                                        const std::vector<Bucket>& buckets,
                                                        std::span<const GradientRange> ranges,
                                                        std::size_t rank) {
  return std::make_unique<PowerSgdExchange>(std::move(context), buckets, ranges, rank);
}

}  // namespace dlaunch
