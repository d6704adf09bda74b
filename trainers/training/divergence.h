// Divergence: a training that has left the numbers. Finds the first place where a value that is
// not finite appeared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "nn/core/flat_parameters.h"
#include "nn/core/module.h"
#include "nn/data/batch_loader.h"
#include "runtime/comm/communicator.h"
#include "runtime/parallel/bucket_plan.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// Watches a network run forward and remembers the first value that is not finite: of a layer's
/// parameters, or of its output. One thread.
class NonFiniteSearch final : public nn::ModuleObserver {
 public:
  struct Finding {
    std::uint64_t place = 0;  // the same number is the same place on all ranks; earlier is less
    std::string what;         // "the output of conv2, Conv2d(...): 3 of 100 numbers are not finite"
    bool in_images = false;
  };

  explicit NonFiniteSearch(const nn::Module& network);

  void check_images(const nn::Tensor& images);
  void forward_begins(const nn::Module& module) override;
  void forward_ended(const nn::Module& module, const nn::Tensor& output) override;

  const std::optional<Finding>& first() const { return first_; }

 private:
  void check(const std::string& what, const nn::Tensor& values, bool in_images = false);

  std::unordered_map<const nn::Module*, std::string> names_;
  std::uint64_t place_ = 0;
  std::optional<Finding> first_;
};

/// Where values that are not finite begin.
struct Beginning {
  std::string where;       // "it begins on rank 1, in ..."
  bool in_images = false;  // not in what has been trained
};

/// Collective: runs a step's micro-batches forward once more, and says where the first value that
/// is not finite is, and on which rank; the same on all of them. `next` returns the input of the
/// next micro-batch. Throws StatusError.
Beginning locate_divergence(Communicator& world, nn::Module& network, std::size_t micro_batches,
                            const std::function<nn::Tensor()>& next);

/// Tensors of a network that are not finite.
struct NotFinite {
  std::size_t count = 0;
  std::string first;  // one of them, by its parameter's name; empty: there is none
};
/// Of the parameters, the first of the network: what comes behind it may only follow from it. Waits
/// for a device.
NotFinite parameters_not_finite(const nn::FlatParameters& parameters);
/// Collective: of the gradients, of which this rank knows `known` parts of the flat array, the last
/// of the network: backward came there first. Waits for a device. Throws StatusError.
NotFinite gradients_not_finite(Communicator& world, const nn::FlatParameters& parameters,
                               std::span<const FlatSpan> known);

/// The first parameter of a network that is not finite, or else the first running statistic; empty:
/// there is none. Waits for a device.
std::string first_not_finite(const nn::FlatParameters& parameters, const nn::Module& network);

/// Whether small parameters' gradients are finite. A value that is not finite spreads to all layers
/// before the one it appears in, so this notices it at no cost, except in one layer's weights.
bool small_gradients_are_finite(const nn::FlatParameters& parameters);

/// What may help: "lower optimizer.learning_rate, warm up (...) or ...".
std::string advice_after_divergence(const TrainConfig& config, bool in_images = false);

}  // namespace dlaunch
