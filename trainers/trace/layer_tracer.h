// LayerTracer: tells a Tracer when each layer of a network runs, forward and backward. One thread.
#pragma once

#include <chrono>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "nn/core/autograd.h"
#include "nn/core/module.h"
#include "trainers/trace/tracer.h"

namespace dlaunch {

class LayerTracer final : public nn::ModuleObserver, public nn::BackwardObserver {
 public:
  /// Both must outlive it. The network is to be told separately (Module::observe).
  LayerTracer(const nn::Module& network, Tracer& tracer);

  void forward_begins(const nn::Module& module) override;
  void forward_ended(const nn::Module& module, const nn::Tensor& output) override;
  void operation_begins(int label, std::string_view name) override;
  void operation_ended(int label, std::string_view name,
                       const std::vector<nn::Tensor>& gradients) override;

 private:
  using Clock = std::chrono::steady_clock;

  Tracer& tracer_;
  std::unordered_map<const nn::Module*, std::uint32_t> names_;  // also the operations' labels
  std::vector<Clock::time_point> begun_;  // modules within modules; operations do not nest
};

}  // namespace dlaunch
