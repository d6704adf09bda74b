// Batch normalisation in ghost batches (Hoffer, Hubara & Soudry 2017): in training the batch is cut
// into parts, each of which is normalised by its own statistics.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/layers/batch_norm.h"

namespace dlaunch::nn {

struct GhostBatchNormOptions {
  std::int64_t parts = 16;  // of a rank's batch; fewer if there are fewer samples
  double eps = 1e-5;
  double momentum = 0.1;  // of all parts of a batch together
};

/// Input [N, H, W, C] or [N, C], f32 or bf16; the output has its type. The scale is fixed at 1; the
/// parameter is "bias" (zeros), the buffers are "running_mean" and "running_var", which follow the
/// parts' statistics and are used in evaluation. Ranks do not share statistics: with `parts` per
/// rank times the ranks constant, the ghost batches have the same size on any number of ranks.
class GhostBatchNorm : public Module {
 public:
  GhostBatchNorm(Backend& backend, std::int64_t channels, GhostBatchNormOptions options = {});

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override { return norm_->output_shape(input); }

 private:
  std::int64_t channels_;
  std::int64_t parts_;
  std::unique_ptr<BatchNorm> norm_;  // of one part; no child: its scale is no parameter
  Tensor bias_;                      // of norm_
};

}  // namespace dlaunch::nn
