#include "nn/cpu/weight_gradient_matmul.h"

#include <algorithm>

#include "nn/cpu/activation.h"
#include "nn/cpu/parallel.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kFewPixels = 16;  // of an output: 4 x 4

std::int64_t patch_size(const Conv2dGeometry& g) {
  return g.kernel_h * g.kernel_w * g.in;
}
std::int64_t output_pixels(const Conv2dGeometry& g) {
  return g.n * g.out_height() * g.out_width();
}

/// The patch that one output pixel of an image sees, zeros outside of the image.
template <typename T>
void copy_patch(const Conv2dGeometry& g, const T* image, std::int64_t row, std::int64_t column,
                T* patch) {
  for (std::int64_t kr = 0; kr < g.kernel_h; ++kr) {
    for (std::int64_t kc = 0; kc < g.kernel_w; ++kc, patch += g.in) {
      const std::int64_t y = row * g.stride_h - g.pad_h + kr;
      const std::int64_t x = column * g.stride_w - g.pad_w + kc;
      if (y < 0 || y >= g.height || x < 0 || x >= g.width) {
        std::fill(patch, patch + g.in, T{});
      } else {
        const T* pixel = image + (y * g.width + x) * g.in;
        std::copy(pixel, pixel + g.in, patch);
      }
    }
  }
}

template <typename T>
void copy_patches(const Conv2dGeometry& g, const T* x, T* patches) {
  parallel_ranges(g.n, 1, [&](std::int64_t begin, std::int64_t end) {
    T* patch = patches + begin * g.out_height() * g.out_width() * patch_size(g);
    for (std::int64_t n = begin; n < end; ++n) {
      for (std::int64_t row = 0; row < g.out_height(); ++row) {
        for (std::int64_t column = 0; column < g.out_width(); ++column, patch += patch_size(g)) {
          copy_patch(g, x + n * g.height * g.width * g.in, row, column, patch);
        }
      }
    }
  });
}

}  // namespace

bool WeightGradientMatmul::pays(const Conv2dGeometry& g, DType dtype) {
  return g.kernel_h == 3 && g.kernel_w == 3 && g.out_height() * g.out_width() <= kFewPixels &&
         g.in >= 256 && g.out >= 256 && (dtype == DType::kF32 || g.stride_h == 2);
}

WeightGradientMatmul::WeightGradientMatmul(const dnnl::engine& engine, const Conv2dGeometry& g,
                                           DType dtype)
    : geometry_(g),
      product_(describe_products(engine, {.count = 1,
                                          .m = g.out,
                                          .n = patch_size(g),
                                          .k = output_pixels(g),
                                          .transposed_a = true,
                                          .beta = 1,
                                          .factors = dtype})) {}

void WeightGradientMatmul::run(OneDnnContext context, ConstArrayRef x, ConstArrayRef dy,
                               float* dw) const {
  const auto& description = product_.description;
  const ScratchMemory patches(context.allocator, description.weights_desc().get_size());
  visit_activation(x.dtype, [&]<typename T>() {
    copy_patches(geometry_, as<T>(x), static_cast<T*>(patches.get()));
  });
  const auto over = [&](const dnnl::memory::desc& layout, const void* data) {
    return memory_over(context.engine, layout, data);
  };
  product_.execute(context, {{DNNL_ARG_SRC, over(description.src_desc(), dy.data)},
                             {DNNL_ARG_WEIGHTS, over(description.weights_desc(), patches.get())},
                             {DNNL_ARG_DST, over(description.dst_desc(), dw)}});
}

}  // namespace dlaunch::nn::cpu
