#include "trainers/trace/layer_tracer.h"

namespace dlaunch {

LayerTracer::LayerTracer(const nn::Module& network, Tracer& tracer) : tracer_(tracer) {
  for (const auto& [name, module] : nn::named_modules(network))
    names_[module] = tracer.name(name.empty() ? "network" : name);
}

void LayerTracer::forward_begins(const nn::Module& /*module*/) {
  begun_.push_back(Clock::now());
}

void LayerTracer::forward_ended(const nn::Module& module, const nn::Tensor& output) {
  const std::uint32_t name = names_.at(&module);
  tracer_.add(
      {.begin = begun_.back(), .end = Clock::now(), .kind = TraceKind::kForward, .name = name});
  begun_.pop_back();
  nn::label_operations(output, static_cast<int>(name));
}

void LayerTracer::operation_begins(int /*label*/, std::string_view /*name*/) {
  begun_.push_back(Clock::now());
}

void LayerTracer::operation_ended(int label, std::string_view name,
                                  const std::vector<nn::Tensor>& /*gradients*/) {
  tracer_.add({.begin = begun_.back(),
               .end = Clock::now(),
               .kind = TraceKind::kBackward,
               .name = label >= 0 ? static_cast<std::uint32_t>(label) : tracer_.name(name)});
  begun_.pop_back();
}

}  // namespace dlaunch
