#include "nn/optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "nn/core/ops.h"
#include "nn/core/optimizer_formulas.h"

namespace dlaunch::nn {
namespace {

constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr double kEpsilon = 1e-7;  // of the norm

bool is_matrix(const FlatView& view) {
  return view.kind == ParameterKind::kWeight && view.parameter.shape().rank() >= 2;
}

/// to = factor from / (norm of `from` + eps)
void scale_to_norm(const Tensor& from, double factor, double eps, const Tensor& to) {
  Backend& backend = from.backend();
  const Tensor inverse = Tensor::empty(backend, {1});
  backend.optimizer().inverse_norm(from.size(), from.data<const float>(), eps,
                                   inverse.data<float>());
  backend.scale(from.size(), static_cast<float>(factor), inverse.data<const float>(),
                from.data<const float>(), to.data<float>());
}

void scale_in_place(const Tensor& tensor, double factor) {
  tensor.backend().scale(tensor.size(), static_cast<float>(factor), nullptr,
                         tensor.data<const float>(), tensor.data<float>());
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

/// The name of the last matrix: the classifier's.
std::string classifier_of(const FlatParameters& parameters) {
  const auto last = std::find_if(parameters.views.rbegin(), parameters.views.rend(), is_matrix);
  return last == parameters.views.rend() ? std::string() : last->name;
}

std::vector<FlatView> matrices_of(const FlatParameters& parameters) {
  const std::string classifier = classifier_of(parameters);
  std::vector<FlatView> matrices;
  for (const FlatView& view : parameters.views)
    if (is_matrix(view) && view.name != classifier) matrices.push_back(view);
  return matrices;
}

std::vector<FlatView> others_of(const FlatParameters& parameters) {
  const std::string classifier = classifier_of(parameters);
  std::vector<FlatView> others;
  for (const FlatView& view : parameters.views)
    if (!is_matrix(view) || view.name == classifier) others.push_back(view);
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

Tensor orthogonalise(const Tensor& matrix, int iterations, DType type) {
  Backend& backend = matrix.backend();
  const std::int64_t rows = matrix.shape()[0];
  const std::int64_t columns = matrix.size() / rows;
  // A is made of the shorter side. x is kept as it lies: [rows, columns].
  const bool wide = rows <= columns;
  const std::int64_t n = std::min(rows, columns);
  Tensor x = Tensor::empty(backend, {rows, columns});
  scale_to_norm(matrix, 1, kEpsilon, x);
  const Tensor a = Tensor::empty(backend, {n, n});
  const Tensor b = Tensor::empty(backend, {n, n});
  Tensor next = Tensor::empty(backend, {rows, columns});
  for (int i = 0; i < iterations; ++i) {
    const Tensor factor = convert(x, type);
    backend.matmul({.transpose_a = !wide,
                    .transpose_b = wide,
                    .m = n,
                    .n = n,
                    .k = std::max(rows, columns),
                    .a = factor.read(),
                    .b = factor.read(),
                    .d = a.write()});
    const Tensor square = convert(a, type);
    // b = kB a + kC a a
    backend.matmul(
        {.m = n, .n = n, .k = n, .a = square.read(), .b = square.read(), .d = b.write()});
    scale_in_place(b, kC);
    backend.axpy(b.size(), kB, a.data<const float>(), b.data<float>());
    // next = kA x + b x, or kA x + x b
    const Tensor polynomial = convert(b, type);
    backend.matmul({.m = rows,
                    .n = columns,
                    .k = n,
                    .a = wide ? polynomial.read() : factor.read(),
                    .b = wide ? factor.read() : polynomial.read(),
                    .d = next.write()});
    backend.axpy(next.size(), kA, x.data<const float>(), next.data<float>());
    std::swap(x, next);
  }
  return x;
}

Muon::Muon(FlatParameters parameters, MuonOptions options)
    : Optimizer(std::move(parameters)),
      options_(options),
      matrices_(matrices_of(this->parameters())),
      others_(others_of(this->parameters())),
      other_ranges_(ranges_of(others_, options.others)),
      velocities_(make_state()),
      matrix_factors_(velocities_.backend(), matrices_.size()),
      other_factors_(velocities_.backend(), other_ranges_.size()) {
  if (!(options_.momentum >= 0 && options_.momentum < 1))
    throw Error("muon: momentum must be in [0, 1)");
  if (options_.iterations < 1) throw Error("muon: at least one iteration is needed");
  if (!(options_.weight_decay >= 0)) throw Error("muon: weight decay must not be negative");
}

void Muon::begin_step(double learning_rate) {
  std::vector<MuonFactors> of_matrices;
  for (const FlatView& view : matrices_) {
    const std::int64_t rows = view.parameter.shape()[0];
    const double scale = scale_of(options_.scale, rows, view.count / rows);
    of_matrices.push_back({.step = static_cast<float>(-learning_rate * scale),
                           .keep = static_cast<float>(1 - learning_rate * options_.weight_decay)});
  }
  matrix_factors_.set(of_matrices);
  std::vector<SgdFactors> of_others;
  for (const OptimizerRange& range : other_ranges_)
    of_others.push_back(sgd_factors(options_.others, range,
                                    options_.others_factor * rate_of(range, learning_rate)));
  other_factors_.set(of_others);
}

void Muon::update(std::int64_t begin, std::int64_t end) {
  for (std::size_t i = 0; i < matrices_.size(); ++i)
    if (matrices_[i].offset >= begin && matrices_[i].offset + matrices_[i].count <= end)
      update_matrix(i);
  const float* gradients = parameters().gradients.data<const float>();
  float* values = parameters().values.data<float>();
  float* velocities = velocities_.data<float>();
  OptimizerKernels& kernels = parameters().values.backend().optimizer();
  for_each_part(other_ranges_, begin, end,
                [&](const OptimizerRange& range, std::int64_t first, std::int64_t count) {
                  const auto index = static_cast<std::size_t>(&range - other_ranges_.data());
                  kernels.sgd_step(count, other_factors_.at(index), skip(),
                                   options_.others.nesterov, gradients + first,
                                   options_.others.momentum > 0 ? velocities + first : nullptr,
                                   values + first);
                });
}

void Muon::update_matrix(std::size_t index) {
  const FlatView& view = matrices_[index];
  const std::array changed{Tensor::view_of(velocities_, view.offset, {view.count}), view.parameter};
  std::vector<Tensor> saved;
  if (skip() != nullptr)
    for (const Tensor& tensor : changed) saved.push_back(copy_of(tensor));
  move_matrix(index);
  for (std::size_t i = 0; i < saved.size(); ++i)
    view.parameter.backend().optimizer().restore(view.count, skip(), saved[i].data<const float>(),
                                                 changed[i].data<float>());
}

void Muon::move_matrix(std::size_t index) {
  const FlatView& view = matrices_[index];
  const MuonFactors* const factors = matrix_factors_.at(index);
  const Shape& shape = view.parameter.shape();
  const std::int64_t rows = shape[0];
  const std::int64_t columns = view.count / rows;
  Backend& backend = view.parameter.backend();
  const Tensor gradient = Tensor::view_of(parameters().gradients, view.offset, {rows, columns});
  const Tensor velocity = Tensor::view_of(velocities_, view.offset, {rows, columns});
  const auto momentum = static_cast<float>(options_.momentum);
  scale_in_place(velocity, options_.momentum);
  backend.axpy(view.count, 1.0F, gradient.data<const float>(), velocity.data<float>());
  Tensor direction = velocity;
  if (options_.nesterov) {
    direction = Tensor::empty(backend, {rows, columns});
    backend.copy(direction.data<float>(), gradient.data<const float>(),
                 static_cast<std::size_t>(view.count) * sizeof(float));
    backend.axpy(view.count, momentum, velocity.data<const float>(), direction.data<float>());
  }
  const Tensor step =
      orthogonalise(direction, options_.iterations, options_.bf16 ? DType::kBF16 : DType::kF32);
  if (options_.scale == MuonScale::kNormalise)
    scale_to_norm(view.parameter, std::sqrt(static_cast<double>(rows)), 0, view.parameter);
  const auto scale_by = [&](const Tensor& tensor, const float* factor) {
    backend.scale(view.count, 1, factor, tensor.data<const float>(), tensor.data<float>());
  };
  if (options_.weight_decay > 0) scale_by(view.parameter, &factors->keep);
  scale_by(step, &factors->step);
  backend.axpy(view.count, 1, step.data<const float>(), view.parameter.data<float>());
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
