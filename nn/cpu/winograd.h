// 3x3 convolutions of stride 1 in bf16 by Winograd's algorithm F(2x2, 3x3) (nn/cpu/winograd_tiles.h
// has the formulas): 2.25 times fewer multiplications than directly. Tiles are transformed a block
// at a time, so that what is in between stays in the cache; the products are oneDNN's matrix
// products, bf16 with f32 accumulation. Transformed tiles and filters are rounded to bf16, which
// adds to the error of the direct algorithm (docs/nn.md).
//
// Objects are for one geometry; one thread at a time uses one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>

#include "nn/core/backend.h"
#include "nn/cpu/onednn.h"
#include "runtime/base/half.h"

namespace dlaunch::nn::cpu {

/// Whether the classes below can do it, and pay: with fewer than 64 channels on a side transforms
/// take longer than the products save.
bool winograd_applies(const Conv2dGeometry& geometry, DType dtype);

/// How the output of a 3x3 convolution is cut into tiles of 2x2 pixels, and these into blocks.
struct WinogradTiling {
  std::int64_t n, height, width;            // images of the input
  std::int64_t out_height, out_width;       // and of the output
  std::int64_t pad;                         // around the input, on each side
  std::int64_t rows, columns;               // of tiles in an image
  std::int64_t block = 0, block_count = 0;  // tiles in a block, blocks

  /// Blocks of at most `most` tiles (and one more if that is even), none of them empty.
  WinogradTiling(std::int64_t n, std::int64_t height, std::int64_t width, std::int64_t pad,
                 std::int64_t most);
  std::int64_t tiles() const { return n * rows * columns; }
};

/// The bytes of transformed filters, which forward and backward share.
std::size_t winograd_filter_bytes(const Conv2dGeometry& geometry);
/// Transforms the weights [out, 3, 3, in] of the geometry.
void transform_winograd_filters(const Conv2dGeometry& geometry, const float* weights,
                                BFloat16* filters);

/// Forward, and backward for the data, which is a convolution of the output's gradient with the
/// filters turned by half a turn - or, since that is the same, of patches turned with the filters
/// as they are.
class WinogradConvolution {
 public:
  enum class Pass { kForward, kBackwardData };

  WinogradConvolution(const dnnl::engine& engine, const Conv2dGeometry& geometry, Pass pass);

  /// y = x convolved, plus bias.
  void run(OneDnnContext context, const BFloat16* x, const BFloat16* filters,
           const float* bias_or_null, BFloat16* y) const;

 private:
  Pass pass_;
  std::int64_t in_;
  std::int64_t out_;
  WinogradTiling tiling_;
  Prepared<dnnl::matmul> product_;
};

/// Backward for the weights.
class WinogradWeightGradient {
 public:
  WinogradWeightGradient(const dnnl::engine& engine, const Conv2dGeometry& geometry);

  /// dw [out, 3, 3, in] += ...
  void run(OneDnnContext context, const BFloat16* x, const BFloat16* dy, float* dw) const;

 private:
  std::int64_t in_;
  std::int64_t out_;
  WinogradTiling tiling_;
  Prepared<dnnl::matmul> first_;  // of the blocks; the sums begin with it
  Prepared<dnnl::matmul> further_;
};

}  // namespace dlaunch::nn::cpu
