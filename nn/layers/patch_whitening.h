// PatchWhitening: a first convolution that is not trained; its filters make the patches of the
// training images uncorrelated and of equal variance (Page 2018, "How to train your ResNet").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/core/module.h"

namespace dlaunch::nn {

/// The trained bias, of ParameterKind::kStem.
enum class StemBias { kNone, kZeros, kRandom };  // random: as torch begins a convolution's

/// Which filters there are, and from what images.
struct PatchWhiteningOptions {
  std::int64_t kernel = 3;
  bool pad = true;       // zeros around the image, so that its size stays (odd kernels only)
  bool negated = false;  // every filter, and then every one with the other sign
  StemBias bias = StemBias::kNone;
  bool centred = false;              // covariance about the patches' mean
  double eps = 1e-2;                 // added to the eigenvalues
  std::size_t images = 10000;        // the first ones of the training set
  DType compute_type = DType::kF32;  // the input is converted to it, and the result has it
};

/// [N, H, W, in] -> [N, H', W', kernel * kernel * in], twice as many channels if negated. The
/// filters are the buffer "weight"; random until somebody fills it, so fill it on one rank and
/// broadcast it like all buffers.
class PatchWhitening : public Module {
 public:
  PatchWhitening(Backend& backend, std::int64_t in, Generator& generator,
                 const PatchWhiteningOptions& options = {});

  Tensor forward(Tensor input) override;
  std::string kind() const override;
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;

  /// [out, kernel, kernel, in].
  const Tensor& weight() const { return weight_; }
  const PatchWhiteningOptions& options() const { return options_; }

 private:
  Conv2dOptions convolution() const { return {.padding = options_.pad ? options_.kernel / 2 : 0}; }

  PatchWhiteningOptions options_;
  Tensor weight_;
  Tensor bias_;  // undefined without bias
};

/// The filters for given images. One thread at a time.
class PatchCovariance {
 public:
  PatchCovariance(std::int64_t kernel, std::int64_t channels);
  ~PatchCovariance();
  PatchCovariance(const PatchCovariance&) = delete;
  PatchCovariance& operator=(const PatchCovariance&) = delete;

  /// Takes in all patches of images [count, height, width, channels]. Many at once are shared among
  /// the threads of OpenMP; the result does not depend on their number.
  void add(std::span<const float> images, std::int64_t height, std::int64_t width);
  /// [kernel * kernel * channels][kernel, kernel, channels]: the eigenvectors of the covariance
  /// (the sum over the patches over their number - 1; about zero or, if `centred`, about their
  /// mean), each over sqrt(its eigenvalue + eps), from the largest eigenvalue down. Their signs are
  /// such that the element of largest magnitude is positive. Error if there was no patch,
  /// or if an eigenvalue is 0 without eps.
  std::vector<float> filters(double eps, bool centred) const;

 private:
  struct Sum;
  std::int64_t kernel_;
  std::int64_t channels_;
  std::int64_t patches_ = 0;
  std::unique_ptr<Sum> sum_;
};

/// Fills the filters of the network's whitening layers, wherever they are, if it has any, calling
/// `images_of` for the covariance to be filled from that many images as the network sees them.
void fill_whitening(
    const Module& network,
    const std::function<void(PatchCovariance& covariance, std::size_t images)>& images_of);

}  // namespace dlaunch::nn
