#include "nn/models/basic_block.h"

#include <cstddef>
#include <memory>
#include <utility>

namespace dlaunch::nn {
namespace {

constexpr Conv2dLayerOptions options_of(std::int64_t stride, std::int64_t padding) {
  return {.stride = stride,
          .padding = padding,
          .bias = false,
          .initialisation = Initialisation::kKaimingFanOut};
}

}  // namespace

BasicBlock::BasicBlock(const ModelBuilder& builder, std::int64_t in, std::int64_t out,
                       std::int64_t stride, const std::string& name)
    : conv1_(&add_module("conv1", builder.conv(in, out, 3, options_of(stride, 1)))),
      bn1_(&add_module("bn1",
                       builder.norm(out, name + ".bn1", {.activation = NormActivation::kRelu}))),
      conv2_(&add_module("conv2", builder.conv(out, out, 3, options_of(1, 1)))),
      bn2_(&add_module("bn2",
                       builder.norm(out, name + ".bn2", {.activation = NormActivation::kRelu}))) {
  if (stride == 1 && in == out) return;
  downsample_ = &add_module("downsample", std::make_unique<Sequential>());
  downsample_->append(builder.conv(in, out, 1, options_of(stride, 0)));
  downsample_->append(builder.norm(out, name + ".downsample.1"));
}

Tensor BasicBlock::forward(Tensor input) {
  const Tensor shortcut = downsample_ == nullptr ? input : (*downsample_)(input);
  Tensor x = (*bn1_)((*conv1_)(std::move(input)));
  return (*bn2_)((*conv2_)(std::move(x)), shortcut);
}

Shape BasicBlock::output_shape(const Shape& input) const {
  return conv2_->output_shape(conv1_->output_shape(input));
}

std::int64_t BasicBlock::multiply_adds(const Shape& input) const {
  const std::int64_t shortcut = downsample_ == nullptr ? 0 : downsample_->multiply_adds(input);
  return conv1_->multiply_adds(input) + conv2_->multiply_adds(conv1_->output_shape(input)) +
         shortcut;
}

void BasicBlock::describe(const std::string& name, const Shape& input,
                          std::vector<LayerRow>& rows) const {
  const Shape inner = conv1_->output_shape(input);
  conv1_->describe(name + ".conv1", input, rows);
  bn1_->describe(name + ".bn1", inner, rows);
  conv2_->describe(name + ".conv2", inner, rows);
  bn2_->describe(name + ".bn2", inner, rows);
  if (downsample_ == nullptr) return;
  const std::size_t first = rows.size();
  downsample_->describe(name + ".downsample", input, rows);
  rows[first].shares_input = true;
}

}  // namespace dlaunch::nn
