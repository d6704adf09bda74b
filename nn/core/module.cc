#include "nn/core/module.h"

#include <algorithm>

namespace dlaunch::nn {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

void collect_modules(const std::string& name, const Module& module, std::vector<NamedModule>& all) {
  all.push_back({name, &module});
  for (const auto& [child_name, child] : module.children())
    collect_modules(joined(name, child_name), *child, all);
}

}  // namespace

std::int64_t Module::multiply_adds(const Shape& /*input*/) const {
  return 0;
}

void Module::describe(const std::string& name, const Shape& input,
                      std::vector<LayerRow>& rows) const {
  rows.push_back(
      {name, kind(), input, output_shape(input), parameter_count(), multiply_adds(input)});
}

void Module::train(bool on) {
  training_ = on;
  for (const auto& [name, child] : children_) child->train(on);
}

void Module::observe(ModuleObserver* observer) {
  observer_ = observer;
  for (const auto& [name, child] : children_) child->observe(observer);
}

std::vector<NamedParameter> Module::parameters() const {
  std::vector<NamedParameter> all;
  collect_parameters("", all);
  return all;
}

std::vector<NamedBuffer> Module::buffers() const {
  std::vector<NamedBuffer> all;
  collect_buffers("", all);
  return all;
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedParameter& parameter : parameters()) count += parameter.tensor.size();
  return count;
}

void Module::require_new_name(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos)
    throw Error("a part of a module is named \"" + name +
                "\": names are paths' parts, without dots");
  const auto has = [&](const auto& part) { return part.name == name; };
  if (std::ranges::any_of(parameters_, has) || std::ranges::any_of(buffers_, has) ||
      std::ranges::any_of(children_, [&](const auto& child) { return child.first == name; }))
    throw Error("a module has a \"" + name + "\" already");
}

Tensor Module::add_parameter(std::string name, Tensor tensor, ParameterKind kind,
                             std::int64_t image_channels) {
  require_new_name(name);
  tensor.set_requires_grad(true);
  parameters_.push_back({std::move(name), tensor, kind, image_channels});
  return tensor;
}

Tensor Module::add_buffer(std::string name, Tensor tensor) {
  require_new_name(name);
  buffers_.push_back({std::move(name), tensor});
  return tensor;
}

void Module::collect_parameters(const std::string& prefix, std::vector<NamedParameter>& all) const {
  for (const NamedParameter& own : parameters_) {
    all.push_back({joined(prefix, own.name), own.tensor, own.kind, own.image_channels});
  }
  for (const auto& [name, child] : children_) child->collect_parameters(joined(prefix, name), all);
}

void Module::collect_buffers(const std::string& prefix, std::vector<NamedBuffer>& all) const {
  for (const NamedBuffer& own : buffers_) all.push_back({joined(prefix, own.name), own.tensor});
  for (const auto& [name, child] : children_) child->collect_buffers(joined(prefix, name), all);
}

Tensor Sequential::forward(Tensor input) {
  for (const auto& [name, child] : children()) input = (*child)(std::move(input));
  return input;
}

Shape Sequential::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const auto& [name, child] : children()) shape = child->output_shape(shape);
  return shape;
}

std::int64_t Sequential::multiply_adds(const Shape& input) const {
  std::int64_t sum = 0;
  Shape shape = input;
  for (const auto& [name, child] : children()) {
    sum += child->multiply_adds(shape);
    shape = child->output_shape(shape);
  }
  return sum;
}

void Sequential::describe(const std::string& name, const Shape& input,
                          std::vector<LayerRow>& rows) const {
  Shape shape = input;
  for (const auto& [child_name, child] : children()) {
    child->describe(joined(name, child_name), shape, rows);
    shape = child->output_shape(shape);
  }
}

std::vector<NamedModule> named_modules(const Module& network) {
  std::vector<NamedModule> all;
  collect_modules("", network, all);
  return all;
}

std::vector<LayerRow> layer_table(const Module& network, const Shape& input) {
  std::vector<LayerRow> rows;
  network.describe("", input, rows);
  return rows;
}

}  // namespace dlaunch::nn
