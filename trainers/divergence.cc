#include "trainers/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "nn/core/autograd.h"
#include "runtime/base/half.h"
#include "runtime/parallel/state_broadcast.h"

namespace dlaunch {
namespace {

bool is_finite(float value) {
  return std::isfinite(value);
}
bool is_finite(BFloat16 value) {
  return std::isfinite(static_cast<float>(value));
}
bool is_finite(Float16 value) {
  return std::isfinite(static_cast<float>(value));
}

template <typename T>
std::size_t count_not_finite(const nn::Tensor& tensor) {
  const std::vector<T> values = tensor.host_values<T>();
  return static_cast<std::size_t>(
      std::ranges::count_if(values, [](T value) { return !is_finite(value); }));
}

std::size_t count_not_finite(const nn::Tensor& tensor) {
  if (tensor.dtype() == DType::kF16) return count_not_finite<Float16>(tensor);
  return tensor.dtype() == DType::kBF16 ? count_not_finite<BFloat16>(tensor)
                                        : count_not_finite<float>(tensor);
}

bool gradient_is_finite(const nn::FlatParameters& parameters, const nn::FlatView& view) {
  const float* const first = parameters.gradients.data<const float>() + view.offset;
  return std::all_of(first, first + view.count, [](float value) { return is_finite(value); });
}

/// The finding at the earliest place, of the lowest rank that has it.
std::string agree(Communicator& world, const std::optional<NonFiniteSearch::Finding>& own) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  const std::array<std::int64_t, 1> mine{own ? static_cast<std::int64_t>(own->place) : kNone};
  std::vector<std::int64_t> places(static_cast<std::size_t>(world.size()));
  throw_if_error(world.all_gather(mine, places).within("divergence"));
  const auto first = std::ranges::min_element(places);
  if (*first == kNone) return "every layer's output is finite when the step is repeated";
  const auto rank = static_cast<int>(first - places.begin());
  std::string text = world.rank() == rank ? own->what : "";
  throw_if_error(broadcast_text(world, text, rank).within("divergence"));
  return fmt::format("it begins on rank {}, {}", rank, text);
}

}  // namespace

NonFiniteSearch::NonFiniteSearch(const nn::Module& network) {
  for (const auto& [name, module] : nn::named_modules(network))
    if (module->children().empty()) names_[module] = name;
}

void NonFiniteSearch::check(const std::string& what, const nn::Tensor& values) {
  ++place_;
  if (first_) return;
  if (const std::size_t bad = count_not_finite(values); bad > 0)
    first_ = {place_, fmt::format("{}: {} of {} numbers are not finite", what, bad, values.size())};
}

void NonFiniteSearch::forward_begins(const nn::Module& module) {
  const auto name = names_.find(&module);
  if (name == names_.end()) return;  // its children are looked at
  for (const nn::NamedParameter& parameter : module.parameters())
    check(fmt::format("in {}.{} as the step before left it", name->second, parameter.name),
          parameter.tensor);
}

void NonFiniteSearch::forward_ended(const nn::Module& module, const nn::Tensor& output) {
  const auto name = names_.find(&module);
  if (name != names_.end())
    check(fmt::format("in the output of {}, {}", name->second, module.kind()), output);
}

std::string locate_divergence(Communicator& world, nn::Module& network, std::size_t micro_batches,
                              const std::function<nn::Tensor()>& next) {
  const nn::NoGradGuard no_grad;
  NonFiniteSearch search(network);
  network.observe(&search);
  for (std::size_t i = 0; i < micro_batches; ++i) {
    nn::Tensor images = next();
    search.check("in the images", images);
    network(std::move(images));
  }
  network.observe(nullptr);
  return agree(world, search.first());
}

std::string divergent_gradient(const nn::FlatParameters& parameters) {
  const auto last =
      std::find_if(parameters.views.rbegin(), parameters.views.rend(),
                   [&](const nn::FlatView& view) { return !gradient_is_finite(parameters, view); });
  return last == parameters.views.rend() ? "" : last->name;
}

bool small_gradients_are_finite(const nn::FlatParameters& parameters) {
  constexpr std::int64_t kSmall = 2048;
  return std::ranges::all_of(parameters.views, [&](const nn::FlatView& view) {
    return view.count > kSmall || gradient_is_finite(parameters, view);
  });
}

}  // namespace dlaunch
