// Divergence: a training that has left the numbers. Finds the first place where a value that is
// not finite appeared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "nn/core/flat_parameters.h"
#include "nn/core/module.h"
#include "nn/data/batch_loader.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Watches a network run forward and remembers the first value that is not finite: of a layer's
/// parameters, or of its output. One thread.
class NonFiniteSearch final : public nn::ModuleObserver {
 public:
  struct Finding {
    std::uint64_t place = 0;  // the same number is the same place on all ranks; earlier is less
    std::string what;         // "the output of conv2, Conv2d(...): 3 of 100 numbers are not finite"
  };

  explicit NonFiniteSearch(const nn::Module& network);

  /// Something else that is computed at this place.
  void check(const std::string& what, const nn::Tensor& values);
  void forward_begins(const nn::Module& module) override;
  void forward_ended(const nn::Module& module, const nn::Tensor& output) override;

  const std::optional<Finding>& first() const { return first_; }

 private:
  std::unordered_map<const nn::Module*, std::string> names_;
  std::uint64_t place_ = 0;
  std::optional<Finding> first_;
};

/// Collective: runs a step's micro-batches forward once more, and says where the first value that
/// is not finite is, and on which rank; the same text on all of them. `next` returns the input of
/// the next micro-batch. Throws StatusError.
std::string locate_divergence(Communicator& world, nn::Module& network, std::size_t micro_batches,
                              const std::function<nn::Tensor()>& next);

/// The parameter whose gradient is not finite and which is the last of the network: backward came
/// there first. Empty if there is none.
std::string divergent_gradient(const nn::FlatParameters& parameters);
/// Whether small parameters' gradients are finite. A value that is not finite spreads to all layers
/// before the one it appears in, so this notices it at no cost, except in one layer's weights.
bool small_gradients_are_finite(const nn::FlatParameters& parameters);

}  // namespace dlaunch
