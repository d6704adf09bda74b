// Module: a layer or a network of layers, with named parameters and buffers.
//
// Names are dotted paths like torch's: "layer1.0.conv1.weight". A module owns its children; it is
// neither copied nor moved. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/core/ops.h"

namespace dlaunch::nn {

enum class ParameterKind {
  kWeight,  // of convolutions and linear layers
  kBias,
  kNorm,  // scale and shift of a normalisation layer
  kStem,  // bias of a first layer whose filters are not trained
};

struct NamedParameter {
  std::string name;
  Tensor tensor;
  ParameterKind kind;
  /// Not 0: the columns of this matrix are the values of an image of so many channels, flattened
  /// [height, width, channels]. In files they lie as torch flattens, [channels, height, width].
  std::int64_t image_channels = 0;
};

/// State that is not trained: running statistics.
struct NamedBuffer {
  std::string name;
  Tensor tensor;
};

/// A line of the layer table.
struct LayerRow {
  std::string name;
  std::string kind;
  Shape input;
  Shape output;
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;  // for the whole batch of the input shape
  bool shares_input = false;       // with a layer above: its input is the same tensor
};

class Module;

/// Is told when the modules of a network run (Module::observe).
class ModuleObserver {
 public:
  virtual ~ModuleObserver() = default;
  virtual void forward_begins(const Module& module) = 0;
  virtual void forward_ended(const Module& module, const Tensor& output) = 0;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// By value: layers overwrite an input that was given away (std::move).
  virtual Tensor forward(Tensor input) = 0;
  /// The same before the eyes of the observer, if there is one: how modules call their children.
  Tensor operator()(Tensor input) {
    return observed([&] { return forward(std::move(input)); });
  }
  /// "Conv2d(3, 32, kernel 3)", for the layer table.
  virtual std::string kind() const = 0;
  /// What forward would return for an input of this shape; Error if that is impossible.
  virtual Shape output_shape(const Shape& input) const = 0;
  /// Multiplications of forward for an input of this shape, of convolutions and matrix products.
  virtual std::int64_t multiply_adds(const Shape& input) const;
  /// Appends this module's lines of the layer table. A leaf has one; modules with children override
  /// it to pass on each child's input shape.
  virtual void describe(const std::string& name, const Shape& input,
                        std::vector<LayerRow>& rows) const;

  /// Training or evaluation mode, of this module and everything below it.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Who is told when this module and everything below it run; null: nobody, at the cost of a
  /// branch. It must outlive the module or be replaced.
  void observe(ModuleObserver* observer);

  /// In the order of registration, depth first; a parameter belongs to one module.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedBuffer> buffers() const;
  std::int64_t parameter_count() const;
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const {
    return children_;
  }

 protected:
  /// Parameters, buffers and children have names of their own (Error for one that is taken, is
  /// empty or has a dot). The tensor is made to require a gradient; keep the returned handle.
  Tensor add_parameter(std::string name, Tensor tensor, ParameterKind kind,
                       std::int64_t image_channels = 0);
  Tensor add_buffer(std::string name, Tensor tensor);
  template <typename M>
  M& add_module(std::string name, std::unique_ptr<M> child) {
    require_new_name(name);
    M& reference = *child;
    children_.emplace_back(std::move(name), std::move(child));
    return reference;
  }
  template <typename Forward>
  Tensor observed(const Forward& forward) {
    if (observer_ == nullptr) return forward();
    observer_->forward_begins(*this);
    Tensor output = forward();
    observer_->forward_ended(*this, output);
    return output;
  }

 private:
  void require_new_name(const std::string& name) const;
  void collect_parameters(const std::string& prefix, std::vector<NamedParameter>& all) const;
  void collect_buffers(const std::string& prefix, std::vector<NamedBuffer>& all) const;

  std::vector<NamedParameter> parameters_;  // of this module itself, without prefix
  std::vector<NamedBuffer> buffers_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  bool training_ = true;
  ModuleObserver* observer_ = nullptr;
};

/// A module of a network and its dotted path, "" for the network itself.
struct NamedModule {
  std::string name;
  const Module* module = nullptr;
};
/// The network and everything below it, each before its children.
std::vector<NamedModule> named_modules(const Module& network);

/// Runs its children one after the other. Children are named "0", "1", ... unless named otherwise.
class Sequential : public Module {
 public:
  Sequential() = default;

  template <typename M>
  M& append(std::unique_ptr<M> layer) {
    return add_module(std::to_string(children().size()), std::move(layer));
  }
  template <typename M>
  M& append(std::string name, std::unique_ptr<M> layer) {
    return add_module(std::move(name), std::move(layer));
  }

  Tensor forward(Tensor input) override;
  std::string kind() const override { return "Sequential"; }
  Shape output_shape(const Shape& input) const override;
  std::int64_t multiply_adds(const Shape& input) const override;
  void describe(const std::string& name, const Shape& input,
                std::vector<LayerRow>& rows) const override;
};

/// The layer table of a network: one row per leaf module.
std::vector<LayerRow> layer_table(const Module& network, const Shape& input);

}  // namespace dlaunch::nn
