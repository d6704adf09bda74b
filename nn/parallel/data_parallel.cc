#include "nn/parallel/data_parallel.h"

#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/parallel/tensor_memory.h"
#include "runtime/device/device_communicator.h"

namespace dlaunch::nn {
namespace {

void check_device(const Communicator& world, const DataParallelOptions& options) {
  if (dynamic_cast<const DeviceWorld*>(&world) == nullptr)
    throw Error(
        "DataParallel: the network is on a GPU, whose memory this communicator does not know; use "
        "one of make_cuda_communicator()");
  if (options.gradients.exchange != GradientExchange::kAllReduce)
    throw Error("DataParallel: gradients on GPUs are not compressed; use kAllReduce");
}

FlatParameters flat_parameters_of(Module& network, Communicator& world,
                                  const DataParallelOptions& options) {
  if (options.gradients.exchange == GradientExchange::kShard)
    throw Error(
        "DataParallel: kShard needs an optimizer in parts; use GradientReducer with "
        "ShardedOptimizer");
  if (!(options.clip_norm >= 0))
    throw Error("DataParallel: clip_norm is " + std::to_string(options.clip_norm) +
                "; use 0 (none) or more");
  FlatParameters parameters = flatten_parameters(network, &world);
  if (!parameters.values.backend().host_accessible()) check_device(world, options);
  return parameters;
}

std::int64_t size_of(FlatSpan span) {
  return static_cast<std::int64_t>(span.size());
}

}  // namespace

DataParallel::DataParallel(Module& network, Communicator& world, DataParallelOptions options)
    : world_(world),
      parameters_(flat_parameters_of(network, world, options)),
      range_of_(parameters_),
      reducer_(world, memory_of(parameters_.gradients), gradient_ranges(parameters_),
               std::move(options.gradients)),
      on_mean_gradients_(std::move(options.on_mean_gradients)) {
  if (options.clip_norm > 0) clipper_.emplace(parameters_.values.backend(), options.clip_norm);
  throw_if_error(broadcast_network(world_, parameters_, network).within("DataParallel"));
}

DataParallel::~DataParallel() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  if (summing_ || failed)
    world_.abort(Status(StatusCode::kAborted,
                        "rank " + std::to_string(world_.rank()) + " has left DataParallel " +
                            (summing_ ? "in the middle of a step" : "because of an exception")));
  unflatten_parameters(parameters_);
}

void DataParallel::backward(const Tensor& loss, double samples, bool last) {
  if (summing_)
    throw Error("DataParallel: the step has had its last micro-batch; step() comes next");
  if (!(samples >= 0) || !std::isfinite(samples))
    throw Error("DataParallel: a micro-batch of " + std::to_string(samples) + " samples");
  if (loss.size() != 1)
    throw Error("DataParallel: a loss is one element, not " + loss.shape().to_string());
  nn::require_graph(loss);  // while nothing has begun yet
  check_parameters();
  const double value = loss.item();
  summing_ = last;
  reducer_.begin(last, {.samples = samples, .loss = value});
  nn::backward(loss, {.on_gradient_ready = [this](const Tensor& leaf) {
                 // What else needs gradients is the caller's.
                 if (const auto range = range_of_.find(leaf)) reducer_.mark_ready(*range);
               }});
}

DataParallelReport DataParallel::step(Optimizer& optimizer, double learning_rate) {
  if (!summing_)
    throw Error("DataParallel: step() without a backward() that was the last of its step");
  if (!(learning_rate >= 0) || !std::isfinite(learning_rate))
    throw Error("DataParallel: a learning rate of " + std::to_string(learning_rate));
  if (!optimizer.parameters().values.same_as(parameters_.values))
    throw Error("DataParallel: the optimizer is one of other parameters; make it of parameters()");
  const StepTotals totals = reducer_.totals().value_or_throw();
  DataParallelReport report{.samples = totals.samples};
  if (totals.samples > 0) {
    report.loss = totals.loss / totals.samples;
    optimizer.begin_step(learning_rate);
  }
  const bool all_first = clipper_ || on_mean_gradients_;
  const auto update = [&](FlatSpan span, double scale) {
    if (!all_first) make_means(span, scale);
    optimizer.update(static_cast<std::int64_t>(span.begin), static_cast<std::int64_t>(span.end));
  };
  throw_if_error(all_first ? reducer_.finish(update, [this](double scale) { finish_means(scale); })
                           : reducer_.finish(update));
  if (clipper_ && totals.samples > 0) report.gradient_norm = clipper_->norm();
  parameters_.zero_gradients();
  summing_ = false;
  return report;
}

// Gradients of a network that has been laid out anew would go elsewhere.
void DataParallel::check_parameters() const {
  for (const FlatView& view : parameters_.views)
    if (!is_in_place(parameters_, view))
      throw Error(
          "DataParallel: " + view.name +
          " has been moved by another DataParallel or flatten_parameters(); a network is in "
          "one of them at a time");
}

void DataParallel::make_means(FlatSpan span, double scale) {
  float* const gradients = parameters_.gradients.data<float>() + span.begin;
  parameters_.values.backend().scale(size_of(span), static_cast<float>(scale), nullptr, gradients,
                                     gradients);
}

// Of all gradients, which are sums still.
void DataParallel::finish_means(double scale) {
  const FlatSpan all{0, static_cast<std::size_t>(parameters_.gradients.size())};
  make_means(all, scale);
  if (on_mean_gradients_) on_mean_gradients_(parameters_.gradients);
  if (!clipper_) return;
  float* const gradients = parameters_.gradients.data<float>();
  clipper_->begin();
  clipper_->add(size_of(all), gradients);
  clipper_->clip(size_of(all), gradients);
}

}  // namespace dlaunch::nn
