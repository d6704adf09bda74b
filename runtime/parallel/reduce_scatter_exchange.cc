// ZeRO stage 1 (Rajbhandari et al. 2020): each rank gets the sums of its own part of a bucket only,
// updates the parameters there, and the parts are gathered again. Together these move the bytes of
// one ring all-reduce.
#include <utility>

#include "runtime/parallel/bucket_exchange.h"
#include "runtime/parallel/works.h"

namespace dlaunch {
namespace {

class ReduceScatterExchange final : public BucketExchange {
 public:
  ReduceScatterExchange(ExchangeContext context, std::vector<Bucket> buckets,
                        std::span<float> parameters)
      : context_(std::move(context)),
        buckets_(std::move(buckets)),
        parameters_(parameters),
        sums_(buckets_.size()),
        gathers_(buckets_.size()) {}

  void start(std::size_t index) override {
    const FlatSpan whole = buckets_[index].span;
    const FlatSpan own = summed(index);
    sums_.set(index, context_.world.start_reduce_scatter(of(context_.gradients, whole),
                                                         of(context_.gradients, own),
                                                         ReduceOp::kSum, sizes(whole)));
  }
  Status wait(std::size_t index) override { return sums_.wait(index); }

  FlatSpan summed(std::size_t index) const override {
    return even_parts(buckets_[index].span,
                      ranks())[static_cast<std::size_t>(context_.world.rank())];
  }

  void updated(std::size_t index) override {
    const FlatSpan whole = buckets_[index].span;
    gathers_.set(index, context_.world.start_all_gather(of(parameters_, summed(index)),
                                                        of(parameters_, whole), sizes(whole)));
  }
  Status finish() override {
    Status first;
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (Status status = gathers_.wait(i); !status.ok() && first.ok())
        first = status.within("gathering parameters");
    return first;
  }

 private:
  static std::span<float> of(std::span<float> flat, FlatSpan part) {
    return flat.subspan(part.begin, part.size());
  }
  std::size_t ranks() const { return static_cast<std::size_t>(context_.world.size()); }
  std::vector<std::size_t> sizes(FlatSpan whole) const {
    std::vector<std::size_t> counts;
    for (const FlatSpan& part : even_parts(whole, ranks())) counts.push_back(part.size());
    return counts;
  }

  ExchangeContext context_;
  std::vector<Bucket> buckets_;
  std::span<float> parameters_;
  Works sums_;
  Works gathers_;
};

}  // namespace

std::unique_ptr<BucketExchange> make_reduce_scatter_exchange(ExchangeContext context,
                                                             std::vector<Bucket> buckets,
                                                             std::span<float> parameters) {
  return std::make_unique<ReduceScatterExchange>(std::move(context), std::move(buckets),
                                                 parameters);
}

}  // namespace dlaunch
