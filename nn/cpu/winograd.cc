#include "nn/cpu/winograd.h"

#include <algorithm>
#include <array>
#include <vector>

#include "nn/cpu/parallel.h"
#include "nn/cpu/winograd_tiles.h"

namespace dlaunch::nn::cpu {
namespace {

using winograd::kPoints;

constexpr std::int64_t kTile = 2;   // pixels of the output, each way
constexpr std::int64_t kPatch = 4;  // pixels of the input
// What a block's transformed tiles and products should take at least: about a core's second-level
// cache. Where filters, which are read anew for every block, or their gradients take more, so much.
constexpr std::int64_t kBlockBytes = std::int64_t{768} << 10;
constexpr std::int64_t kLeastChannels = 64;
constexpr std::int64_t kGrain = 16;  // tiles or filters for a thread

std::int64_t ceil_of(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

std::int64_t tiles_in_block(std::int64_t bytes_per_tile, std::int64_t filter_bytes) {
  return std::max(kBlockBytes, filter_bytes) / bytes_per_tile;
}

dnnl::memory over(OneDnnContext context, const dnnl::memory::desc& layout, const void* data) {
  return memory_over(context.engine, layout, data);
}

/// The tiles of one block: calls function(tile's index in the block, image, row, column of the
/// tile's first output pixel), from several threads.
template <typename Function>
void each_tile(const WinogradTiling& tiling, std::int64_t block, const Function& function) {
  const std::int64_t first = block * tiling.block;
  const std::int64_t count = std::min(tiling.block, tiling.tiles() - first);
  parallel_ranges(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t tile = first + i;
      const std::int64_t in_image = tile % (tiling.rows * tiling.columns);
      function(i, tile / (tiling.rows * tiling.columns), in_image / tiling.columns * kTile,
               in_image % tiling.columns * kTile);
    }
  });
}

/// Where the pixels of a size x size patch are in an image [height, width, channels], last to first
/// if `turned`; those outside of it are at `outside`.
template <std::int64_t size, typename T>
std::array<T*, size * size> patch_of(T* image, std::int64_t height, std::int64_t width,
                                     std::int64_t channels, std::int64_t row, std::int64_t column,
                                     T* outside, bool turned = false) {
  std::array<T*, size * size> pixels;
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j < size; ++j) {
      const std::int64_t y = row + i;
      const std::int64_t x = column + j;
      const bool inside = y >= 0 && y < height && x >= 0 && x < width;
      pixels[static_cast<std::size_t>(i * size + j)] =
          inside ? image + (y * width + x) * channels : outside;
    }
  }
  if (turned) std::reverse(pixels.begin(), pixels.end());
  return pixels;
}

/// Clears what the last block leaves empty of `planes` [kPoints, block, channels].
void clear_rest(const WinogradTiling& tiling, std::int64_t block, std::int64_t channels,
                BFloat16* planes) {
  const std::int64_t used = std::min(tiling.block, tiling.tiles() - block * tiling.block);
  for (std::int64_t p = 0; p < kPoints && used < tiling.block; ++p) {
    BFloat16* const plane = planes + p * tiling.block * channels;
    std::fill(plane + used * channels, plane + tiling.block * channels, BFloat16());
  }
}

/// The transformed input tiles of a block: planes [kPoints, block, channels].
void transform_inputs(const WinogradTiling& t, std::int64_t block, std::int64_t channels,
                      const BFloat16* x, const BFloat16* zeros, bool turned, BFloat16* planes) {
  each_tile(t, block, [&](std::int64_t i, std::int64_t n, std::int64_t row, std::int64_t column) {
    const auto pixels = patch_of<kPatch>(x + n * t.height * t.width * channels, t.height, t.width,
                                         channels, row - t.pad, column - t.pad, zeros, turned);
    winograd::transform_input(pixels.data(), channels, planes + i * channels, t.block * channels);
  });
  clear_rest(t, block, channels, planes);
}

void transform_gradients(const WinogradTiling& t, std::int64_t block, std::int64_t channels,
                         const BFloat16* dy, const BFloat16* zeros, BFloat16* planes) {
  each_tile(t, block, [&](std::int64_t i, std::int64_t n, std::int64_t row, std::int64_t column) {
    const auto pixels = patch_of<kTile>(dy + n * t.out_height * t.out_width * channels,
                                        t.out_height, t.out_width, channels, row, column, zeros);
    winograd::transform_gradient(pixels.data(), channels, planes + i * channels,
                                 t.block * channels);
  });
  clear_rest(t, block, channels, planes);
}

void transform_outputs(const WinogradTiling& t, std::int64_t block, std::int64_t channels,
                       const float* planes, const float* bias_or_null, bool turned, BFloat16* y) {
  each_tile(t, block, [&](std::int64_t i, std::int64_t n, std::int64_t row, std::int64_t column) {
    thread_local std::vector<BFloat16> nowhere;
    nowhere.resize(static_cast<std::size_t>(channels));
    const auto pixels = patch_of<kTile>(y + n * t.out_height * t.out_width * channels, t.out_height,
                                        t.out_width, channels, row, column, nowhere.data(), turned);
    winograd::transform_output(planes + i * channels, t.block * channels, channels, bias_or_null,
                               pixels.data());
  });
}

/// A row of zeros, for pixels outside of an image.
class Zeros {
 public:
  Zeros(CachingAllocator& allocator, std::int64_t channels)
      : memory_(allocator, static_cast<std::size_t>(channels) * sizeof(BFloat16)) {
    std::fill_n(static_cast<BFloat16*>(memory_.get()), channels, BFloat16());
  }
  const BFloat16* get() const { return static_cast<const BFloat16*>(memory_.get()); }

 private:
  ScratchMemory memory_;
};

std::int64_t input_channels(const Conv2dGeometry& g, WinogradConvolution::Pass pass) {
  return pass == WinogradConvolution::Pass::kForward ? g.in : g.out;
}

WinogradTiling tiling_of(const Conv2dGeometry& g, WinogradConvolution::Pass pass) {
  const std::int64_t in = input_channels(g, pass);
  const std::int64_t out = g.in + g.out - in;
  const std::int64_t bytes =
      kPoints * (in * std::int64_t{sizeof(BFloat16)} + out * std::int64_t{sizeof(float)});
  const auto filters = static_cast<std::int64_t>(winograd_filter_bytes(g));
  const std::int64_t most = tiles_in_block(bytes, filters * 3 / 2);
  if (pass == WinogradConvolution::Pass::kForward) return {g.n, g.height, g.width, g.pad_h, most};
  return {g.n, g.out_height(), g.out_width(), 2 - g.pad_h, most};
}

WinogradTiling gradient_tiling_of(const Conv2dGeometry& g) {
  const std::int64_t bytes = kPoints * (g.in + g.out) * std::int64_t{sizeof(BFloat16)};
  const std::int64_t sums = kPoints * g.in * g.out * std::int64_t{sizeof(float)};
  return {g.n, g.height, g.width, g.pad_h, tiles_in_block(bytes, sums)};
}

/// Gradients of transformed filters, of a block's tiles; added to those of other blocks.
dnnl::matmul::primitive_desc describe_sums(const dnnl::engine& engine, const Conv2dGeometry& g,
                                           std::int64_t block, bool adding) {
  return describe_products(engine, {.count = kPoints,
                                    .m = g.out,
                                    .n = g.in,
                                    .k = block,
                                    .transposed_a = true,
                                    .beta = adding ? 1.0F : 0.0F});
}

}  // namespace

bool winograd_applies(const Conv2dGeometry& g, DType dtype) {
  return dtype == DType::kBF16 && g.kernel_h == 3 && g.kernel_w == 3 && g.stride_h == 1 &&
         g.stride_w == 1 && g.pad_h == g.pad_w && g.pad_h <= 2 &&
         std::min(g.in, g.out) >= kLeastChannels && g.in % winograd::kChannelBlock == 0 &&
         g.out % winograd::kChannelBlock == 0;
}

WinogradTiling::WinogradTiling(std::int64_t images, std::int64_t image_height,
                               std::int64_t image_width, std::int64_t padding, std::int64_t most)
    : n(images),
      height(image_height),
      width(image_width),
      out_height(image_height + 2 * padding - 2),
      out_width(image_width + 2 * padding - 2),
      pad(padding),
      rows(ceil_of(out_height, kTile)),
      columns(ceil_of(out_width, kTile)) {
  // An odd number: planes an even power of two apart would fall into the same lines of the cache.
  block = ceil_of(tiles(), ceil_of(tiles(), most)) | 1;
  block_count = ceil_of(tiles(), block);  // which may be fewer for it: none may be empty
}

std::size_t winograd_filter_bytes(const Conv2dGeometry& g) {
  return static_cast<std::size_t>(kPoints * g.in * g.out) * sizeof(BFloat16);
}

// As they lie: [kPoints, out, in].
void transform_winograd_filters(const Conv2dGeometry& g, const float* weights, BFloat16* filters) {
  parallel_ranges(g.out, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      winograd::transform_filter(weights + k * 9 * g.in, g.in, filters + k * g.in, g.out * g.in);
    }
  });
}

WinogradConvolution::WinogradConvolution(const dnnl::engine& engine, const Conv2dGeometry& geometry,
                                         Pass pass)
    : pass_(pass),
      in_(input_channels(geometry, pass)),
      out_(geometry.in + geometry.out - in_),
      tiling_(tiling_of(geometry, pass)),
      product_(describe_products(engine, {.count = kPoints,
                                          .m = tiling_.block,
                                          .n = out_,
                                          .k = in_,
                                          .transposed_b = pass == Pass::kForward})) {}

void WinogradConvolution::run(OneDnnContext context, const BFloat16* x, const BFloat16* filters,
                              const float* bias_or_null, BFloat16* y) const {
  const auto& description = product_.description;
  const ScratchMemory inputs(context.allocator, description.src_desc().get_size());
  const ScratchMemory outputs(context.allocator, description.dst_desc().get_size());
  const Zeros zeros(context.allocator, in_);
  const std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, over(context, description.src_desc(), inputs.get())},
      {DNNL_ARG_WEIGHTS, over(context, description.weights_desc(), filters)},
      {DNNL_ARG_DST, over(context, description.dst_desc(), outputs.get())}};
  const bool turned = pass_ == Pass::kBackwardData;
  for (std::int64_t block = 0; block < tiling_.block_count; ++block) {
    transform_inputs(tiling_, block, in_, x, zeros.get(), turned,
                     static_cast<BFloat16*>(inputs.get()));
    product_.execute(context, arguments);
    transform_outputs(tiling_, block, out_, static_cast<const float*>(outputs.get()), bias_or_null,
                      turned, y);
  }
}

WinogradWeightGradient::WinogradWeightGradient(const dnnl::engine& engine, const Conv2dGeometry& g)
    : in_(g.in),
      out_(g.out),
      tiling_(gradient_tiling_of(g)),
      first_(describe_sums(engine, g, tiling_.block, false)),
      further_(describe_sums(engine, g, tiling_.block, true)) {}

void WinogradWeightGradient::run(OneDnnContext context, const BFloat16* x, const BFloat16* dy,
                                 float* dw) const {
  const auto& description = first_.description;
  const ScratchMemory inputs(context.allocator, description.weights_desc().get_size());
  const ScratchMemory gradients(context.allocator, description.src_desc().get_size());
  const ScratchMemory sums(context.allocator, description.dst_desc().get_size());
  const Zeros zeros(context.allocator, std::max(in_, out_));
  const std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, over(context, description.src_desc(), gradients.get())},
      {DNNL_ARG_WEIGHTS, over(context, description.weights_desc(), inputs.get())},
      {DNNL_ARG_DST, over(context, description.dst_desc(), sums.get())}};
  for (std::int64_t block = 0; block < tiling_.block_count; ++block) {
    transform_inputs(tiling_, block, in_, x, zeros.get(), false,
                     static_cast<BFloat16*>(inputs.get()));
    transform_gradients(tiling_, block, out_, dy, zeros.get(),
                        static_cast<BFloat16*>(gradients.get()));
    (block == 0 ? first_ : further_).execute(context, arguments);
  }
  const auto* const planes = static_cast<const float*>(sums.get());
  parallel_ranges(out_, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      winograd::add_filter_gradient(planes + k * in_, in_ * out_, in_, dw + k * 9 * in_);
    }
  });
}

}  // namespace dlaunch::nn::cpu
