#include "trainers/training/divergence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "nn/core/autograd.h"
#include "nn/core/optimizer_kernels.h"
#include "runtime/base/half.h"
#include "runtime/comm/objects.h"

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

/// Of f32 values, on any device.
bool all_finite(const nn::Tensor& tensor) {
  return std::isfinite(
      tensor.backend().optimizer().sum_of_squares(tensor.size(), tensor.data<const float>()));
}

/// By view, whether elements of it that lie in `spans` of `flat` are not finite; on any device.
std::vector<std::int32_t> find_not_finite(const nn::FlatParameters& parameters,
                                          const nn::Tensor& flat, std::span<const FlatSpan> spans) {
  nn::OptimizerKernels& kernels = flat.backend().optimizer();
  std::vector<std::int32_t> found;
  for (const nn::FlatView& view : parameters.views) {
    const auto begin = static_cast<std::size_t>(view.offset);
    const std::size_t end = begin + static_cast<std::size_t>(view.count);
    found.push_back(std::ranges::any_of(spans, [&](const FlatSpan& span) {
      const std::size_t first = std::max(begin, span.begin);
      const std::size_t last = std::min(end, span.end);
      return first < last &&
             !std::isfinite(kernels.sum_of_squares(static_cast<std::int64_t>(last - first),
                                                   flat.data<const float>() + first));
    }));
  }
  return found;
}

NotFinite summary_of(const std::vector<std::int32_t>& found, std::size_t first,
                     const nn::FlatParameters& parameters) {
  const auto count = static_cast<std::size_t>(std::ranges::count(found, 1));
  return {count, count == 0 ? "" : parameters.views[first].name};
}

/// The finding at the earliest place, of the lowest rank that has it.
Beginning agree(Communicator& world, const std::optional<NonFiniteSearch::Finding>& own) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  // Twice the place, and one more if it is in the images.
  const std::array<std::int64_t, 1> mine{
      own ? static_cast<std::int64_t>(2 * own->place + (own->in_images ? 1 : 0)) : kNone};
  std::vector<std::int64_t> places(static_cast<std::size_t>(world.size()));
  throw_if_error(world.all_gather(mine, places).within("divergence"));
  const auto first = std::ranges::min_element(places);
  if (*first == kNone) return {.where = "every layer's output is finite when the step is repeated"};
  const auto rank = static_cast<int>(first - places.begin());
  std::string text = world.rank() == rank ? own->what : "";
  throw_if_error(broadcast_bytes(world, text, rank).within("divergence"));
  return {.where = fmt::format("it begins on rank {}, {}", rank, text),
          .in_images = *first % 2 == 1};
}

}  // namespace

NonFiniteSearch::NonFiniteSearch(const nn::Module& network) {
  for (const auto& [name, module] : nn::named_modules(network))
    if (module->children().empty()) names_[module] = name;
}

void NonFiniteSearch::check(const std::string& what, const nn::Tensor& values, bool in_images) {
  ++place_;
  if (first_) return;
  if (const std::size_t bad = count_not_finite(values); bad > 0)
    first_ = {place_, fmt::format("{}: {} of {} numbers are not finite", what, bad, values.size()),
              in_images};
}

void NonFiniteSearch::check_images(const nn::Tensor& images) {
  check("in the images", images, true);
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

Beginning locate_divergence(Communicator& world, nn::Module& network, std::size_t micro_batches,
                            const std::function<nn::Tensor()>& next) {
  const nn::NoGradGuard no_grad;
  NonFiniteSearch search(network);
  network.observe(&search);
  for (std::size_t i = 0; i < micro_batches; ++i) {
    nn::Tensor images = next();
    search.check_images(images);
    network(std::move(images));
  }
  network.observe(nullptr);
  return agree(world, search.first());
}

NotFinite parameters_not_finite(const nn::FlatParameters& parameters) {
  const FlatSpan everything{0, static_cast<std::size_t>(parameters.values.size())};
  const auto found = find_not_finite(parameters, parameters.values, {&everything, 1});
  const auto first = std::ranges::find(found, 1) - found.begin();
  return summary_of(found, static_cast<std::size_t>(first), parameters);
}

NotFinite gradients_not_finite(Communicator& world, const nn::FlatParameters& parameters,
                               std::span<const FlatSpan> known) {
  auto found = find_not_finite(parameters, parameters.gradients, known);
  throw_if_error(world.all_reduce(found, ReduceOp::kMax).within("divergence"));
  const auto behind_last = std::find(found.rbegin(), found.rend(), 1).base() - found.begin();
  return summary_of(found, static_cast<std::size_t>(behind_last) - 1, parameters);
}

std::string first_not_finite(const nn::FlatParameters& parameters, const nn::Module& network) {
  if (!all_finite(parameters.values)) return parameters_not_finite(parameters).first;
  for (const nn::NamedBuffer& buffer : network.buffers())
    if (!all_finite(buffer.tensor)) return buffer.name;
  return "";
}

bool small_gradients_are_finite(const nn::FlatParameters& parameters) {
  constexpr std::int64_t kSmall = 2048;
  return std::ranges::all_of(parameters.views, [&](const nn::FlatView& view) {
    return view.count > kSmall || gradient_is_finite(parameters, view);
  });
}

std::string advice_after_divergence(const TrainConfig& config, bool in_images) {
  if (in_images) return "set data.mean and data.std to those of the images";
  std::vector<std::string> all{
      "lower optimizer.learning_rate", "warm up (schedule.warmup_epochs)",
      config.clip_norm > 0 ? "lower optimizer.clip_norm" : "clip gradients (optimizer.clip_norm)"};
  if (config.compute_type == ComputeType::kF16) {
    if (!config.loss_scaling.enabled) all.emplace_back("scale the loss (train.loss_scaling)");
    all.emplace_back("use train.compute_type \"bf16\", whose numbers are larger");
  }
  if (config.parallel.gradients == GradientExchange::kFloat16)
    all.emplace_back("use parallel.gradients \"bf16\", whose numbers are larger");
  const std::string last = std::move(all.back());
  all.pop_back();
  return fmt::format("{} or {}", fmt::join(all, ", "), last);
}

}  // namespace dlaunch
