#include <utility>

#include "runtime/parallel/bucket_exchange.h"
#include "runtime/parallel/works.h"

namespace dlaunch {
namespace {

class AllReduceExchange final : public BucketExchange {
 public:
  AllReduceExchange(ExchangeContext context, std::vector<Bucket> buckets)
      : context_(std::move(context)), buckets_(std::move(buckets)), works_(buckets_.size()) {}

  void start(std::size_t index) override {
    const FlatSpan span = summed(index);
    works_.set(index, context_.world.start_all_reduce(
                          context_.gradients.subspan(span.begin, span.size())));
  }
  Status wait(std::size_t index) override { return works_.wait(index); }
  FlatSpan summed(std::size_t index) const override { return buckets_[index].span; }

 private:
  ExchangeContext context_;
  std::vector<Bucket> buckets_;
  Works works_;
};

}  // namespace

std::unique_ptr<BucketExchange> make_all_reduce_exchange(ExchangeContext context,
                                                         std::vector<Bucket> buckets) {
  return std::make_unique<AllReduceExchange>(std::move(context), std::move(buckets));
}

}  // namespace dlaunch
