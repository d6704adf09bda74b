// Operations on tensors. Each checks shapes (Error), runs kernels of the tensors' Backend and,
// where gradients are recorded, joins the graph. Arguments are passed by value: give a tensor away
// (std::move) if you no longer need it, and its memory is reused where that is possible.
// Activations are f32, bf16 or f16 where a comment does not say which, results have the same type.
#pragma once

#include <cstdint>
#include <span>

#include "nn/core/random.h"
#include "nn/core/tensor.h"

namespace dlaunch::nn {

Tensor add(Tensor a, Tensor b);  // of equal shapes and types
/// The same values as f32, bf16 or f16 (rounded to nearest even); x itself if that is its type.
Tensor convert(Tensor x, DType dtype);
Tensor relu(Tensor x);
/// The same values in another shape of the same size.
Tensor reshape(const Tensor& x, const Shape& shape);
/// [N, ...] -> [N, rest].
Tensor flatten(const Tensor& x);
Shape flattened(const Shape& x);

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on all four sides
};
/// x [N, H, W, in], weights [out, kh, kw, in], bias [out] or undefined -> [N, H', W', out].
/// Weights, bias and their gradients are f32; with x in 16 bits the weights are rounded for
/// multiplying.
Tensor conv2d(const Tensor& x, const Tensor& weights, const Tensor& bias,
              Conv2dOptions options = {});
/// What conv2d does with these shapes; Error if it cannot.
Conv2dGeometry conv2d_geometry(const Shape& x, const Shape& weights, Conv2dOptions options);

/// x [N, in], weights [out, in], bias [out] or undefined -> [N, out]. Weights, bias and
/// result are f32; x may be of any activation type, in which the product is then computed.
Tensor linear(const Tensor& x, const Tensor& weights, const Tensor& bias);

struct Pool2dOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 0;   // 0: as the kernel
  std::int64_t padding = 0;  // at most kernel / 2
};
/// x [N, H, W, C] -> [N, H', W', C]. The kernel is at most 15.
Tensor max_pool2d(const Tensor& x, Pool2dOptions options = {});
/// What max_pool2d does with this shape; Error if it cannot.
PoolGeometry max_pool2d_geometry(const Shape& x, Pool2dOptions options);

/// Rows and columns of zeros around images [N, H, W, C]; negative numbers cut as many off.
struct Padding {
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;
};
Tensor pad2d(const Tensor& x, const Padding& padding);
/// What pad2d does with this shape; Error if nothing would be left.
WindowGeometry pad2d_geometry(const Shape& x, const Padding& padding);

/// x [N, H, W, C] -> [N, C], the mean over the pixels, in f32.
Tensor global_avg_pool(const Tensor& x);

/// Zeroes each element with `probability` (in [0, 1)) and scales the others by 1 / (1 -
/// probability) (inverted dropout, Srivastava et al. 2014). Takes x.size() words from `generator`.
Tensor dropout(Tensor x, double probability, Generator& generator);

enum class Reduction { kSum, kMean };
struct CrossEntropyOptions {
  double label_smoothing = 0;  // epsilon: targets are (1 - epsilon) one_hot + epsilon / classes
  Reduction reduction = Reduction::kSum;
};
/// logits [N, classes], one label per row in [0, classes) (Error names the first other) -> scalar.
/// Both reductions of an empty batch are 0. A tensor of labels is i32 or i64, [N].
Tensor cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels,
                     CrossEntropyOptions options = {});
Tensor cross_entropy(const Tensor& logits, std::span<const std::int64_t> labels,
                     CrossEntropyOptions options = {});
Tensor cross_entropy(const Tensor& logits, const Tensor& labels, CrossEntropyOptions options = {});
/// own_share times the cross entropy with `labels`, and the rest of 1 times that with
/// `partner_labels`: the loss of mixed images.
Tensor mixed_cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels,
                           std::span<const std::int32_t> partner_labels, float own_share,
                           CrossEntropyOptions options = {});

/// x Phi(x), Phi being the normal distribution's (Hendrycks & Gimpel 2016).
Tensor gelu(Tensor x);
/// x / (1 + exp(-x)) (Elfwing, Uchibe & Doya 2017).
Tensor silu(Tensor x);
/// x where it is positive, else alpha (exp(x / alpha) - 1) (Barron 2017).
Tensor celu(Tensor x, float alpha);
/// factor x. f32.
Tensor scale(Tensor x, float factor);

}  // namespace dlaunch::nn
