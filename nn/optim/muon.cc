#include "nn/optim/muon.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "nn/core/optimizer_kernels.h"

namespace dlaunch::nn {
namespace {

constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
constexpr double kEpsilon = 1e-7;  // of the norm

bool is_matrix(const FlatView& view) {
  return view.kind == ParameterKind::kWeight && view.parameter.shape().rank() >= 2;
}

double norm_of(const Tensor& tensor) {
  return std::sqrt(
      tensor.backend().optimizer().sum_of_squares(tensor.size(), tensor.data<const float>()));
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

}  // namespace

Tensor orthogonalise(const Tensor& matrix, int iterations) {
  Backend& backend = matrix.backend();
  const std::int64_t rows = matrix.shape()[0];
  const std::int64_t columns = matrix.size() / rows;
  // A is made of the shorter side. x is kept as it lies: [rows, columns].
  const bool wide = rows <= columns;
  const std::int64_t n = std::min(rows, columns);
  Tensor x = Tensor::empty(backend, {rows, columns});
  backend.scale(x.size(), static_cast<float>(1 / (norm_of(matrix) + kEpsilon)), nullptr,
                matrix.data<const float>(), x.data<float>());
  const Tensor a = Tensor::empty(backend, {n, n});
  const Tensor b = Tensor::empty(backend, {n, n});
  Tensor next = Tensor::empty(backend, {rows, columns});
  for (int i = 0; i < iterations; ++i) {
    backend.matmul({.transpose_a = !wide,
                    .transpose_b = wide,
                    .m = n,
                    .n = n,
                    .k = std::max(rows, columns),
                    .a = x.read(),
                    .b = x.read(),
                    .c = a.write()});
    // b = kB a + kC a a
    backend.matmul({.m = n,
                    .n = n,
                    .k = n,
                    .a = a.read(),
                    .b = a.read(),
                    .c = b.write()});
    scale_in_place(b, kC);
    backend.axpy(b.size(), kB, a.data<const float>(), b.data<float>());
    // next = kA x + b x, or kA x + x b
    backend.matmul({.m = rows,
                    .n = columns,
                    .k = n,
                    .a = wide ? b.read() : x.read(),
                    .b = wide ? x.read() : b.read(),
                    .c = next.write()});
    backend.axpy(next.size(), kA, x.data<const float>(), next.data<float>());
    std::swap(x, next);
  }
  return x;
}

Muon::Muon(FlatParameters parameters, MuonOptions options)
    : Optimizer(std::move(parameters)), options_(options), velocities_(make_state()) {
  if (!(options_.momentum >= 0 && options_.momentum < 1))
    throw Error("muon: momentum must be in [0, 1)");
  if (options_.iterations < 1) throw Error("muon: at least one iteration is needed");
  if (!(options_.weight_decay >= 0)) throw Error("muon: weight decay must not be negative");
  const std::vector<FlatView>& views = this->parameters().views;
  const auto classifier = std::find_if(views.rbegin(), views.rend(), is_matrix);
  for (const FlatView& view : views)
    (is_matrix(view) && view.name != classifier->name ? matrices_ : others_).push_back(view);
  // Others are not neighbours: a matrix may lie between them.
  for (const FlatView& view : others_)
    for (const OptimizerRange& range :
         optimizer_ranges({view}, options_.others.weight_decay, options_.others.rate_factors))
      other_ranges_.push_back(range);
}

void Muon::begin_step(double learning_rate) {
  learning_rate_ = learning_rate;
}

void Muon::update(std::int64_t begin, std::int64_t end) {
  for (const FlatView& view : matrices_)
    if (view.offset >= begin && view.offset + view.count <= end) update_matrix(view);
  const float* gradients = parameters().gradients.data<const float>();
  float* values = parameters().values.data<float>();
  float* velocities = velocities_.data<float>();
  OptimizerKernels& kernels = parameters().values.backend().optimizer();
  for_each_part(other_ranges_, begin, end,
                [&](const OptimizerRange& range, std::int64_t first, std::int64_t count) {
                  const SgdArguments arguments{
                      .learning_rate = learning_rate_ * options_.others_factor * range.rate_factor,
                      .momentum = options_.others.momentum,
                      .weight_decay = range.weight_decay,
                      .nesterov = options_.others.nesterov};
                  kernels.sgd_step(count, arguments, gradients + first,
                                   options_.others.momentum > 0 ? velocities + first : nullptr,
                                   values + first);
                });
}

void Muon::update_matrix(const FlatView& view) {
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
  const Tensor step = orthogonalise(direction, options_.iterations);
  const double norm = options_.scale == MuonScale::kNormalise ? norm_of(view.parameter) : 0;
  if (norm > 0) scale_in_place(view.parameter, std::sqrt(static_cast<double>(rows)) / norm);
  if (options_.weight_decay > 0)
    scale_in_place(view.parameter, 1 - learning_rate_ * options_.weight_decay);
  backend.axpy(view.count,
               static_cast<float>(-learning_rate_ * scale_of(options_.scale, rows, columns)),
               step.data<const float>(), view.parameter.data<float>());
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
