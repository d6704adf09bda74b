#include "nn/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn {
namespace {

constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;

bool is_matrix(const FlatView& view) {
  return view.kind == ParameterKind::kWeight && view.parameter.shape().rank() >= 2;
}

std::int64_t rows_of(const FlatView& matrix) {
  return matrix.parameter.shape()[0];
}

bool are_alike(const FlatView& a, const FlatView& b) {
  return a.count == b.count && rows_of(a) == rows_of(b);
}

/// The factor of an update of [rows, columns].
double scale_of(MuonScale scale, std::int64_t rows, std::int64_t columns) {
  const auto r = static_cast<double>(rows);
  const auto c = static_cast<double>(columns);
  switch (scale) {
    case MuonScale::kOriginal:
      return std::sqrt(std::max(1.0, r / c));
    case MuonScale::kMatchAdam:
      return 0.2 * std::sqrt(std::max(r, c));
    case MuonScale::kNormalise:
      return 1;
  }
  return 1;
}

/// The offset of the last matrix: the classifier's.
std::int64_t classifier_of(const FlatParameters& parameters) {
  const auto last = std::find_if(parameters.views.rbegin(), parameters.views.rend(), is_matrix);
  return last == parameters.views.rend() ? -1 : last->offset;
}

/// Those of one shape are neighbours.
std::vector<FlatView> stepping_matrices(const FlatParameters& parameters) {
  const std::int64_t classifier = classifier_of(parameters);
  std::vector<FlatView> matrices;
  for (const FlatView& view : parameters.views)
    if (is_matrix(view) && view.parameter.requires_grad() && view.offset != classifier)
      matrices.push_back(view);
  std::ranges::stable_sort(
      matrices, {}, [](const FlatView& view) { return std::pair(rows_of(view), view.count); });
  return matrices;
}

std::vector<FlatView> others_of(const FlatParameters& parameters) {
  const std::int64_t classifier = classifier_of(parameters);
  std::vector<FlatView> others;
  for (const FlatView& view : parameters.views)
    if (!is_matrix(view) || view.offset == classifier) others.push_back(view);
  return others;
}

/// One for each: others are not neighbours, a matrix may lie between them.
std::vector<OptimizerRange> ranges_of(const std::vector<FlatView>& others,
                                      const SgdOptions& options) {
  std::vector<OptimizerRange> ranges;
  for (const FlatView& view : others)
    for (const OptimizerRange& range :
         optimizer_ranges({view}, options.weight_decay, options.rate_factors))
      ranges.push_back(range);
  return ranges;
}

}  // namespace

Tensor newton_schulz(Tensor x, int iterations) {
  Backend& backend = x.backend();
  const std::int64_t count = x.shape()[0];
  const std::int64_t rows = x.shape()[1];
  const std::int64_t columns = x.shape()[2];
  // A is made of the shorter side; tall matrices stay as they lie.
  const bool wide = rows <= columns;
  const std::int64_t n = std::min(rows, columns);
  const Tensor a = Tensor::empty(backend, {count, n, n}, x.dtype());
  const Tensor b = Tensor::empty(backend, {count, n, n}, x.dtype());
  Tensor next = Tensor::empty(backend, x.shape(), x.dtype());
  for (int i = 0; i < iterations; ++i) {
    backend.matmul({.transpose_a = !wide,
                    .transpose_b = wide,
                    .count = count,
                    .m = n,
                    .n = n,
                    .k = std::max(rows, columns),
                    .a = x.read(),
                    .b = x.read(),
                    .d = a.write()});
    // b = kC a a + kB a
    backend.matmul({.count = count,
                    .m = n,
                    .n = n,
                    .k = n,
                    .alpha = kC,
                    .beta = kB,
                    .a = a.read(),
                    .b = a.read(),
                    .c = a.read(),
                    .d = b.write()});
    // next = b x + kA x, or x b + kA x
    backend.matmul({.count = count,
                    .m = rows,
                    .n = columns,
                    .k = n,
                    .beta = kA,
                    .a = wide ? b.read() : x.read(),
                    .b = wide ? x.read() : b.read(),
                    .c = x.read(),
                    .d = next.write()});
    std::swap(x, next);
  }
  return x;
}

Muon::Muon(FlatParameters parameters, MuonOptions options)
    : Optimizer(std::move(parameters)),
      options_(options),
      matrices_(stepping_matrices(this->parameters())),
      others_(others_of(this->parameters())),
      other_ranges_(ranges_of(others_, options.others)),
      velocities_(make_state()),
      factors_(velocities_.backend(), matrices_.size() + other_ranges_.size()) {
  if (!(options_.momentum >= 0 && options_.momentum < 1))
    throw Error("muon: momentum must be in [0, 1)");
  if (options_.iterations < 1) throw Error("muon: at least one iteration is needed");
  if (!(options_.weight_decay >= 0)) throw Error("muon: weight decay must not be negative");
  if (!(options_.others_factor >= 0))
    throw Error("muon: the others' factor of the learning rate must not be negative");
  options_.others.check();
  if (options_.scale == MuonScale::kNormalise)
    norm_factors_ =
        Tensor::zeros(velocities_.backend(), {static_cast<std::int64_t>(matrices_.size())});
}

void Muon::begin_step(double learning_rate) {
  std::vector<SgdFactors> factors;
  for (const FlatView& view : matrices_) {
    const std::int64_t rows = rows_of(view);
    const double scale = scale_of(options_.scale, rows, view.count / rows);
    // p - rate (x + decay p) = p (1 - learning_rate weight_decay) - learning_rate scale x
    factors.push_back(sgd_factors(SgdArguments{.learning_rate = learning_rate * scale,
                                               .momentum = options_.momentum,
                                               .weight_decay = options_.weight_decay / scale}));
  }
  for (const OptimizerRange& range : other_ranges_)
    factors.push_back(sgd_factors(options_.others, range,
                                  options_.others_factor * rate_of(range, learning_rate)));
  factors_.set(factors);
}

void Muon::update(std::int64_t begin, std::int64_t end) {
  update_matrices(begin, end);
  update_others(begin, end);
}

void Muon::update_matrices(std::int64_t begin, std::int64_t end) {
  OptimizerKernels& kernels = velocities_.backend().optimizer();
  std::vector<Batch> batches = batches_in(begin, end);
  kernels.muon_directions(matrices_of(batches), skip(), options_.nesterov);
  for (Batch& batch : batches) batch.x = newton_schulz(std::move(batch.x), options_.iterations);
  kernels.muon_step(matrices_of(batches), skip());
}

std::vector<Muon::Batch> Muon::batches_in(std::int64_t begin, std::int64_t end) const {
  std::vector<Batch> batches;
  for (std::size_t i = 0; i < matrices_.size(); ++i) {
    if (matrices_[i].offset < begin || matrices_[i].offset + matrices_[i].count > end) continue;
    if (batches.empty() || !are_alike(matrices_[batches.back().members.front()], matrices_[i]))
      batches.emplace_back();
    batches.back().members.push_back(i);
  }
  for (Batch& batch : batches) {
    const FlatView& view = matrices_[batch.members.front()];
    const std::int64_t rows = rows_of(view);
    batch.x =
        Tensor::empty(velocities_.backend(),
                      {static_cast<std::int64_t>(batch.members.size()), rows, view.count / rows},
                      options_.bf16 ? DType::kBF16 : DType::kF32);
  }
  return batches;
}

std::vector<MuonMatrix> Muon::matrices_of(const std::vector<Batch>& batches) const {
  const float* gradients = parameters().gradients.data<const float>();
  float* values = parameters().values.data<float>();
  float* velocities = velocities_.data<float>();
  std::vector<MuonMatrix> matrices;
  for (const Batch& batch : batches) {
    ArrayRef x = batch.x.write();
    for (const std::size_t i : batch.members) {
      const FlatView& view = matrices_[i];
      matrices.push_back(
          {.count = view.count,
           .rows = rows_of(view),
           .factors = factors_.data() + i,
           .gradients = gradients + view.offset,
           .velocities = velocities + view.offset,
           .parameters = values + view.offset,
           .x = x,
           .norm_factor = norm_factors_.defined() ? norm_factors_.data<float>() + i : nullptr});
      x.data =
          static_cast<std::byte*>(x.data) + static_cast<std::size_t>(view.count) * size_of(x.dtype);
    }
  }
  return matrices;
}

void Muon::update_others(std::int64_t begin, std::int64_t end) {
  const bool has_momentum = options_.others.momentum > 0;
  velocities_.backend().optimizer().sgd_step(
      sgd_parts(parameters(), other_ranges_, factors_.data() + matrices_.size(),
                has_momentum ? velocities_.data<float>() : nullptr, begin, end),
      skip(), options_.others.nesterov);
}

std::vector<NamedTensor> Muon::flat_state() const {
  return {{"velocity", velocities_}};
}

std::vector<NamedTensor> Muon::state() const {
  std::vector<NamedTensor> all;
  append_state("velocity", velocities_, matrices_, all);
  if (options_.others.momentum > 0) append_state("velocity", velocities_, others_, all);
  return all;
}

std::size_t Muon::state_bytes() const {
  return static_cast<std::size_t>(velocities_.size()) * sizeof(float);
}

}  // namespace dlaunch::nn
