// Batch normalisation (Ioffe & Szegedy 2015), of the local batch or, across ranks, of the global
// one. One implementation: BatchNorm is SyncBatchNorm in a world of one. docs/nn.md has the
// formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "nn/core/module.h"
#include "nn/core/norm_kernels.h"
#include "nn/core/row_parts.h"
#include "runtime/comm/communicator.h"

namespace dlaunch::nn {

/// The defaults are PyTorch's, as far as it has them. Its cumulative average (momentum=None) there
/// is not. What is out of range is an Error of the constructor.
struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;            // weight of the new batch, all of it, in the running statistics
  bool affine = true;               // parameters "weight" (ones) and "bias" (zeros)
  bool scale = true;                // if affine: whether there is a "weight"
  bool track_running_stats = true;  // buffers "running_mean" (zeros) and "running_var" (ones)
  ParameterKind bias_kind = ParameterKind::kNorm;  // what the optimizer takes "bias" for
  /// In training the batch is cut into so many parts, each of which is normalised by itself (ghost
  /// batches: Hoffer, Hubara & Soudry 2017); across ranks, with the same part of theirs.
  std::int64_t parts = 1;
  NormActivation activation = NormActivation::kNone;  // of the result, in the same passes
  float celu_alpha = 1;                               // of NormActivation::kCelu
  // The input goes through max-pooling first, in the same passes where the device can.
  std::optional<Pool2dOptions> pool = std::nullopt;
};

/// Input [N, C] or [N, H, W, C] (with pooling the latter); each channel is brought to mean 0 and
/// (biased) variance 1 over all other dimensions, then scaled and shifted if affine.
///
/// In training the batch's own statistics are used, and the running ones follow them (the variance
/// unbiased). A part with a single value per channel is an Error; an empty one changes nothing. In
/// evaluation the running statistics are used; without them, those of the local batch.
///
/// Input and result are f32, bf16 or f16; statistics and parameters are not. For backward it keeps
/// the input, 2 C + 1 doubles for each part and, with a residual and ReLU, the result; with
/// pooling, instead of the input, what pooling made of it and a byte for each of these values.
class BatchNorm : public Module {
 public:
  BatchNorm(Backend& backend, std::int64_t channels, BatchNormOptions options = {});

  Tensor forward(Tensor input) override { return forward(std::move(input), Tensor()); }
  /// The normalised input plus `residual` (of the result's shape and type; undefined: nothing; with
  /// GELU, SiLU and CELU an Error), then the activation if the layer has one.
  Tensor forward(Tensor input, const Tensor& residual);
  using Module::operator();
  Tensor operator()(Tensor input, const Tensor& residual) {
    return observed([&] { return forward(std::move(input), residual); });
  }
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;

 protected:
  /// `label` names the layer in errors; `group` (null, or of one: this rank alone) shares the
  /// statistics.
  BatchNorm(Backend& backend, std::int64_t channels, BatchNormOptions options, std::string label,
            Communicator* group);

 private:
  /// The input after max-pooling in the pass that makes its statistics.
  struct Pooled {
    PoolGeometry geometry;
    PooledNormKernels& kernels;
    Tensor x;
    Tensor argmax;  // undefined unless backward needs it

    std::uint8_t* argmax_or_null() const;
  };

  void check(const Tensor& input, const Tensor& residual) const;
  RowParts parts_of(const Tensor& x) const;
  NormFunction function(const Tensor& statistics) const;
  /// Still empty; none if there is no pooling, or none that the device has such a pass for.
  std::optional<Pooled> pooled_in_same_pass(const Tensor& input, bool recording) const;
  StatisticsFinish statistics_finish() const;
  /// Of the batch's parts, summed over the group: f64 [parts, 2 C + 1]. Fills `pooled`.
  Tensor statistics_of_batch(const Tensor& input, const std::optional<Pooled>& pooled,
                             RowParts parts, Communicator* group);
  /// From the running ones: f64 [1, 2 C + 1].
  Tensor running_statistics(Backend& backend) const;

  std::int64_t channels_;
  BatchNormOptions options_;
  std::string label_;
  Communicator* group_;
  Tensor weight_;  // these are undefined where options_ says so
  Tensor bias_;
  Tensor running_mean_;
  Tensor running_var_;
};

}  // namespace dlaunch::nn
