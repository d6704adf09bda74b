// Operations on images [N, H, W, C].
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kLargestPool = 15;  // 15 x 15 positions fit the byte that names the winner

class Conv2dFunction : public Function {
 public:
  Conv2dFunction(const Conv2dGeometry& geometry, Tensor input, Tensor weights)
      : geometry_(geometry), input_(std::move(input)), weights_(std::move(weights)) {}
  std::string_view name() const override { return "conv2d"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& context) override;

 private:
  Conv2dGeometry geometry_;
  Tensor input_;
  Tensor weights_;  // the very tensor given to forward: the backend keeps reordered values with it
};

/// Where the filters are fixed: sums += the sum over all pixels.
void add_bias_gradient(const Tensor& grad_output, const Tensor& sums) {
  const Tensor wide = convert(grad_output.detach(), DType::kF32);
  const std::int64_t channels = sums.size();
  wide.backend().accumulate_column_sums(wide.size() / channels, channels, wide.data<const float>(),
                                        sums.data<float>());
}

std::vector<Tensor> Conv2dFunction::backward(Tensor grad_output, const BackwardContext& context) {
  Backend& backend = input_.backend();
  std::vector<Tensor> gradients(3);
  if (!context.needs(1) && context.needs(2)) {
    gradients[2] = gradient_sum(context, 2, backend, {geometry_.out});
    add_bias_gradient(grad_output, gradients[2]);
  } else if (context.needs(1)) {
    gradients[1] = gradient_sum(context, 1, backend, weights_.shape());
    if (context.needs(2)) gradients[2] = gradient_sum(context, 2, backend, {geometry_.out});
    backend.conv2d_backward_weights(geometry_, input_.read(), grad_output.read(),
                                    gradients[1].data<float>(),
                                    context.needs(2) ? gradients[2].data<float>() : nullptr);
  }
  if (context.needs(0)) {
    gradients[0] = Tensor::empty(backend, input_.shape(), input_.dtype());
    backend.conv2d_backward_data(geometry_, grad_output.read(), weights_.weights(),
                                 gradients[0].write());
  }
  return gradients;
}

class PadFunction : public Function {
 public:
  explicit PadFunction(const WindowGeometry& geometry) : geometry_(geometry) {}
  std::string_view name() const override { return "pad2d"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    const WindowGeometry back = geometry_.backward();
    Tensor grad_input = Tensor::empty(grad_output.backend(), back.output(), grad_output.dtype());
    grad_output.backend().window(back, grad_output.read(), grad_input.write());
    return {std::move(grad_input)};
  }

 private:
  WindowGeometry geometry_;
};

class MaxPoolFunction : public Function {
 public:
  MaxPoolFunction(const PoolGeometry& geometry, const Shape& input, Tensor argmax)
      : geometry_(geometry), input_(input), argmax_(std::move(argmax)) {}
  std::string_view name() const override { return "max_pool2d"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    Tensor grad_input = Tensor::empty(grad_output.backend(), input_, grad_output.dtype());
    grad_output.backend().max_pool2d_backward(
        geometry_, grad_output.read(), argmax_.data<const std::uint8_t>(), grad_input.write());
    return {std::move(grad_input)};
  }

 private:
  PoolGeometry geometry_;
  Shape input_;
  Tensor argmax_;
};

class GlobalAvgPoolFunction : public Function {
 public:
  explicit GlobalAvgPoolFunction(const Tensor& input)
      : input_(input.shape()), dtype_(input.dtype()) {}
  std::string_view name() const override { return "global_avg_pool"; }
  std::vector<Tensor> backward(Tensor grad_output, const BackwardContext& /*context*/) override {
    Tensor grad_input = Tensor::empty(grad_output.backend(), input_, dtype_);
    grad_output.backend().global_avg_pool_backward(input_[0], input_[1] * input_[2], input_[3],
                                                   grad_output.data<const float>(),
                                                   grad_input.write());
    return {std::move(grad_input)};
  }

 private:
  Shape input_;
  DType dtype_;
};

void require_image(const char* operation, const Shape& x) {
  if (x.rank() != 4) {
    throw Error(std::string(operation) + ": input " + x.to_string() + " must be [N, H, W, C]");
  }
}

}  // namespace

Conv2dGeometry conv2d_geometry(const Shape& x, const Shape& weights, Conv2dOptions options) {
  require_image("conv2d", x);
  const std::string shapes = "input " + x.to_string() + ", weights " + weights.to_string();
  if (weights.rank() != 4 || weights.size() == 0) {
    throw Error("conv2d: weights must be [out, height, width, in]: " + shapes);
  }
  if (x[3] != weights[3]) throw Error("conv2d: the numbers of channels differ: " + shapes);
  if (options.stride < 1 || options.padding < 0) {
    throw Error("conv2d: stride " + std::to_string(options.stride) + ", padding " +
                std::to_string(options.padding) + " are impossible");
  }
  if (x[1] + 2 * options.padding < weights[1] || x[2] + 2 * options.padding < weights[2]) {
    throw Error("conv2d: the kernel is larger than the padded image: " + shapes);
  }
  return {.n = x[0],
          .height = x[1],
          .width = x[2],
          .in = x[3],
          .out = weights[0],
          .kernel_h = weights[1],
          .kernel_w = weights[2],
          .stride_h = options.stride,
          .stride_w = options.stride,
          .pad_h = options.padding,
          .pad_w = options.padding};
}

Tensor conv2d(const Tensor& x, const Tensor& weights, const Tensor& bias, Conv2dOptions options) {
  const Conv2dGeometry geometry = conv2d_geometry(x.shape(), weights.shape(), options);
  if (bias.defined() && bias.shape() != Shape{geometry.out}) {
    throw Error("conv2d: bias " + bias.shape().to_string() + " does not fit weights " +
                weights.shape().to_string());
  }
  Tensor y = Tensor::empty(x.backend(), geometry.output(), x.dtype());
  x.backend().conv2d(geometry, x.read(), weights.weights(),
                     bias.defined() ? bias.data<const float>() : nullptr, y.write());
  if (is_recording({x, weights, bias})) {
    record(y, {x, weights, bias}, std::make_unique<Conv2dFunction>(geometry, x.detach(), weights));
  }
  return y;
}

WindowGeometry pad2d_geometry(const Shape& x, const Padding& padding) {
  require_image("pad2d", x);
  const WindowGeometry geometry{.n = x[0],
                                .height = x[1],
                                .width = x[2],
                                .channels = x[3],
                                .out_height = x[1] + padding.top + padding.bottom,
                                .out_width = x[2] + padding.left + padding.right,
                                .top = -padding.top,
                                .left = -padding.left};
  if (geometry.out_height < 1 || geometry.out_width < 1)
    throw Error("pad2d: nothing would be left of the input " + x.to_string());
  return geometry;
}

Tensor pad2d(const Tensor& x, const Padding& padding) {
  const WindowGeometry geometry = pad2d_geometry(x.shape(), padding);
  Tensor y = Tensor::empty(x.backend(), geometry.output(), x.dtype());
  x.backend().window(geometry, x.read(), y.write());
  if (is_recording({x})) record(y, {x}, std::make_unique<PadFunction>(geometry));
  return y;
}

PoolGeometry max_pool2d_geometry(const Shape& x, Pool2dOptions options) {
  require_image("max_pool2d", x);
  const std::int64_t stride = options.stride == 0 ? options.kernel : options.stride;
  if (options.kernel < 1 || options.kernel > kLargestPool || stride < 1 || options.padding < 0 ||
      options.padding > options.kernel / 2) {
    throw Error("max_pool2d: kernel " + std::to_string(options.kernel) + ", stride " +
                std::to_string(stride) + ", padding " + std::to_string(options.padding) +
                " are impossible");
  }
  if (x[1] < 1 || x[2] < 1)
    throw Error("max_pool2d: images of the input " + x.to_string() + " have no pixels");
  if (x[1] + 2 * options.padding < options.kernel || x[2] + 2 * options.padding < options.kernel) {
    throw Error("max_pool2d: a kernel of " + std::to_string(options.kernel) +
                " is larger than the padded input " + x.to_string());
  }
  return {.n = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .kernel = options.kernel,
          .stride = stride,
          .pad = options.padding};
}

Tensor max_pool2d(const Tensor& x, Pool2dOptions options) {
  const PoolGeometry geometry = max_pool2d_geometry(x.shape(), options);
  Tensor y = Tensor::empty(x.backend(), geometry.output(), x.dtype());
  if (!is_recording({x})) {
    x.backend().max_pool2d(geometry, x.read(), y.write(), nullptr);
    return y;
  }
  Tensor argmax = Tensor::empty(x.backend(), y.shape(), DType::kU8);
  x.backend().max_pool2d(geometry, x.read(), y.write(), argmax.data<std::uint8_t>());
  record(y, {x}, std::make_unique<MaxPoolFunction>(geometry, x.shape(), std::move(argmax)));
  return y;
}

Tensor global_avg_pool(const Tensor& x) {
  const Shape& image = x.shape();
  require_image("global_avg_pool", image);
  if (image[1] == 0 || image[2] == 0) {
    throw Error("global_avg_pool: input " + image.to_string() + " has no pixels");
  }
  Tensor y = Tensor::empty(x.backend(), {image[0], image[3]});
  x.backend().global_avg_pool(image[0], image[1] * image[2], image[3], x.read(), y.data<float>());
  if (is_recording({x})) record(y, {x}, std::make_unique<GlobalAvgPoolFunction>(x));
  return y;
}

}  // namespace dlaunch::nn
