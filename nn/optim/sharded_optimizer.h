// ShardedOptimizer: an optimizer for some parts of the flat arrays, with state for these only (ZeRO
// stage 1). Each part has an optimizer of its own, which sees nothing else.
#pragma once

#include "nn/optim/optimizer.h"

namespace dlaunch::nn {

class ShardedOptimizer : public Optimizer {
 public:
  using Make = std::function<std::unique_ptr<Optimizer>(const FlatParameters& part)>;

  /// `parts` do not overlap. Error if an optimizer that `make` returns needs whole parameters:
  /// parts may begin and end within one.
  ShardedOptimizer(const FlatParameters& parameters, const std::vector<FlatPart>& parts,
                   const Make& make);

  void begin_step(double learning_rate) override;
  void set_stem_rate(double learning_rate) override;
  void skip_when(Tensor word) override;
  /// [begin, end) is one or more whole parts (Error).
  void update(std::int64_t begin, std::int64_t end) override;
  /// None: each part's optimizer has its own.
  std::vector<NamedTensor> flat_state() const override { return {}; }
  std::size_t state_bytes() const override;

  /// The optimizer of the part with this number, which may be an empty one.
  const Optimizer& part(std::size_t index) const { return *shards_[index].optimizer; }

 private:
  struct Shard {
    FlatPart part;
    std::unique_ptr<Optimizer> optimizer;
  };
  std::vector<Shard> shards_;
};

}  // namespace dlaunch::nn
