#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "runtime/collective/reduction.h"
#include "runtime/parallel/bucket_exchange.h"
#include "runtime/parallel/works.h"

namespace dlaunch {
namespace {

constexpr std::size_t kBlock = 2048;  // elements; stays in the first cache

/// Rounds `values` to 16 bits each, which then fill the first half of their memory.
void narrow_in_place(DType dtype, std::span<float> values, float scale) {
  auto* const halves = reinterpret_cast<std::byte*>(values.data());
  std::array<float, kBlock> block;
  for (std::size_t i = 0; i < values.size(); i += kBlock) {
    const std::size_t count = std::min(kBlock, values.size() - i);
    for (std::size_t j = 0; j < count; ++j) block[j] = values[i + j] * scale;
    narrow(dtype, block.data(), halves + 2 * i, count);
  }
}

/// The inverse, from the end to the beginning.
void widen_in_place(DType dtype, std::span<float> values, float scale) {
  const auto* const halves = reinterpret_cast<const std::byte*>(values.data());
  std::array<float, kBlock> block;
  for (std::size_t end = values.size(); end > 0;) {
    const std::size_t begin = (end - 1) / kBlock * kBlock;
    widen(dtype, halves + 2 * begin, block.data(), end - begin);
    for (std::size_t j = begin; j < end; ++j) values[j] = block[j - begin] * scale;
    end = begin;
  }
}

class HalfExchange final : public BucketExchange {
 public:
  HalfExchange(ExchangeContext context, std::vector<Bucket> buckets, DType dtype)
      : context_(std::move(context)),
        buckets_(std::move(buckets)),
        dtype_(dtype),
        works_(buckets_.size()) {}

  void start(std::size_t index) override {
    if (index == 0) scale_ = scale_of_step();
    const std::span<float> values = of(index);
    narrow_in_place(dtype_, values, scale_);
    // Most algorithms send partial sums, and those in 32 bits; choosing one takes that into
    // account.
    works_.set(index,
               context_.world.start_all_reduce(Buffer(values.data(), values.size(), dtype_)));
  }
  Status wait(std::size_t index) override {
    DLAUNCH_RETURN_IF_ERROR(works_.wait(index));
    widen_in_place(dtype_, of(index), 1 / scale_);
    return {};
  }
  FlatSpan summed(std::size_t index) const override { return buckets_[index].span; }

 private:
  /// Of f16, whose numbers end at 65504 and lose bits below 6e-5: it sends kUp times the parts of a
  /// mean over the samples, or up to half of that, which does not depend on how many these are. A
  /// power of two, so that nothing is rounded. bf16 has float's range and needs none.
  float scale_of_step() const {
    constexpr float kUp = 128;  // means of a network that trains are small
    if (dtype_ == DType::kBF16) return 1;
    const Result<double> samples = context_.samples();
    if (!samples.ok() || *samples == 0) return 1;  // whoever asked for the totals gets the error
    int exponent = 0;
    (void)std::frexp(*samples, &exponent);
    return std::ldexp(kUp, -exponent);
  }

  std::span<float> of(std::size_t index) const {
    const FlatSpan span = buckets_[index].span;
    return context_.gradients.subspan(span.begin, span.size());
  }

  ExchangeContext context_;
  std::vector<Bucket> buckets_;
  DType dtype_;
  float scale_ = 1;  // of the step, what gradients are sent times
  Works works_;
};

}  // namespace

std::unique_ptr<BucketExchange> make_half_exchange(ExchangeContext context,
                                                   std::vector<Bucket> buckets, DType dtype) {
  return std::make_unique<HalfExchange>(std::move(context), std::move(buckets), dtype);
}

}  // namespace dlaunch
