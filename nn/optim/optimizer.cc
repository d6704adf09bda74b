#include "nn/optim/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {

double PerKind::of(ParameterKind kind) const {
  switch (kind) {
    case ParameterKind::kWeight:
      return weight;
    case ParameterKind::kBias:
      return bias;
    case ParameterKind::kNorm:
      return norm;
    case ParameterKind::kStem:
      return stem;
  }
  return weight;
}

void PerKind::check(const std::string& what) const {
  for (const double value : {weight, bias, norm, stem})
    if (!(value >= 0 && std::isfinite(value)))
      throw Error(what + " must be a finite number from 0");
}

Tensor Optimizer::make_state() const {
  return Tensor::zeros(parameters_.values.backend(), parameters_.values.shape());
}

void Optimizer::append_state(const std::string& prefix, const Tensor& flat,
                             const std::vector<FlatView>& views, std::vector<NamedTensor>& all) {
  for (const FlatView& view : views)
    all.push_back({prefix + "." + view.name,
                   Tensor::view_of(flat, view.offset, view.parameter.shape()),
                   view.image_channels});
}

std::vector<NamedTensor> Optimizer::state() const {
  std::vector<NamedTensor> all = scalars();
  for (const NamedTensor& item : flat_state())
    append_state(item.name, item.tensor, parameters_.views, all);
  return all;
}

std::vector<OptimizerRange> optimizer_ranges(const std::vector<FlatView>& views,
                                             const PerKind& weight_decay,
                                             const PerKind& rate_factors) {
  std::vector<OptimizerRange> ranges;
  bool beside = false;  // the last range
  for (const FlatView& view : views) {
    const bool follows = std::exchange(beside, view.parameter.requires_grad());
    if (!beside) continue;
    const double decay = weight_decay.of(view.kind);
    const double factor = rate_factors.of(view.kind);
    const bool stem = view.kind == ParameterKind::kStem;
    if (!follows || ranges.back().weight_decay != decay || ranges.back().rate_factor != factor ||
        ranges.back().stem != stem)
      ranges.push_back(
          {.begin = view.offset, .weight_decay = decay, .rate_factor = factor, .stem = stem});
    ranges.back().end = view.offset + view.count;
  }
  return ranges;
}

void for_each_part(
    const std::vector<OptimizerRange>& ranges, std::int64_t begin, std::int64_t end,
    const std::function<void(const OptimizerRange&, std::int64_t, std::int64_t)>& function) {
  for (const OptimizerRange& range : ranges) {
    const std::int64_t first = std::max(begin, range.begin);
    const std::int64_t count = std::min(end, range.end) - first;
    if (count > 0) function(range, first, count);
  }
}

}  // namespace dlaunch::nn
