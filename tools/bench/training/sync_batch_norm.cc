#include "tools/bench/training/sync_batch_norm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"
#include "nn/core/random.h"
#include "nn/layers/sync_batch_norm.h"
#include "tools/bench/measure/memory.h"
#include "tools/bench/measure/repeat.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/report.h"
#include "tools/bench/training/device_limits.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr double kMicro = 1e6;
constexpr double kBytesOfMiB = 1 << 20;
/// How often a batch passes through memory at least, if no cache holds it: forward reads it for the
/// statistics, reads it again and writes the result; backward reads it and the gradient for the
/// sums, reads both again and writes.
constexpr double kPasses = 8;

/// How many values of a tensor are drawn: the host draws 15 million in a second.
constexpr std::size_t kDrawn = 1'000'000;

/// Normal values; after the first kDrawn they repeat.
nn::Tensor random_tensor(nn::Backend& backend, const nn::Shape& shape, DType type,
                         nn::Generator& generator) {
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  generator.fill_normal(std::span(values).first(std::min(kDrawn, values.size())), 0, 1);
  for (std::size_t i = kDrawn; i < values.size(); ++i) values[i] = values[i - kDrawn];
  return convert(nn::Tensor::from<float>(backend, shape, values), type);
}

/// Forward and backward of `layer` on a batch of its own. On the CPU every repetition has fresh
/// values, which so are in the cache of who computes; a GPU's are as its events find them.
Summary measure_layer(BenchDevice& device, nn::Module& layer, const nn::Shape& shape,
                      const TrainingOptions& options) {
  nn::Backend& backend = device.backend();
  const DType type = options.bf16 ? DType::kBF16 : DType::kF32;
  nn::Generator generator(1, static_cast<std::uint64_t>(device.world().rank()));
  nn::Tensor input = random_tensor(backend, shape, type, generator);
  nn::Tensor gradient = random_tensor(backend, shape, type, generator);
  input.set_requires_grad(true);
  const bool refills = !device.is_gpu() && !options.bf16;
  const auto prepare = [&](std::uint64_t /*repetition*/) {
    if (refills) {
      generator.fill_normal(input.values<float>(), 0, 1);
      generator.fill_normal(gradient.values<float>(), 0, 1);
    }
    input.set_grad({});
  };
  const auto run = [&] { nn::backward(layer.forward(input), {.gradient = gradient}); };
  WorldRanks ranks(device.world());
  return summarize(repeat(ranks, options.limits, device.timed(prepare, run)));
}

/// What a cell is about: rows of features, or images.
struct NormCell {
  nn::Shape shape;
  int channels = 0;
};

std::vector<NormCell> cells_of(const TrainingOptions& options) {
  std::vector<NormCell> cells;
  for (const int channels : options.channels)
    for (const int batch : options.batches) cells.push_back({{batch, channels}, channels});
  for (const ImageCell& image : options.images)
    cells.push_back({{image.count, image.side, image.side, image.channels}, image.channels});
  return cells;
}

/// Of this rank's backend and, on the CPU, its process, since `before` bytes were in use.
double peak_of(BenchDevice& device, std::size_t before) {
  if (!device.is_gpu()) return peak_mib();
  return static_cast<double>(device.backend().memory().peak - before) / kBytesOfMiB;
}

void report_cell(const NormCell& cell, const nlohmann::ordered_json& values) {
  std::printf("%6lld %9d %14.2f %11.2f %9.2f", static_cast<long long>(cell.shape[0]), cell.channels,
              values["us"].get<double>(), values["batch_norm_us"].get<double>(),
              values["peak_mib"].get<double>());
  if (values.contains("bound_us"))
    std::printf(" %9.2f %7.2f", values["bound_us"].get<double>(),
                values["us"].get<double>() / values["bound_us"].get<double>());
  std::printf("   %s\n", cell.shape.to_string().c_str());
  std::fflush(stdout);
}

nlohmann::ordered_json measure_cell(BenchDevice& device, const NormCell& cell,
                                    const TrainingOptions& options, double bytes_per_second) {
  nn::Backend& backend = device.backend();
  WorldRanks ranks(device.world());
  const std::size_t before = backend.memory().in_use;
  backend.reset_peak();
  reset_peak();
  nn::SyncBatchNorm synchronised(backend, cell.channels, device.world());
  const Summary together = measure_layer(device, synchronised, cell.shape, options);
  std::array<double, 1> peak{peak_of(device, before)};
  ranks.maximum(peak);
  nn::BatchNorm local(backend, cell.channels);
  const Summary alone = measure_layer(device, local, cell.shape, options);
  nlohmann::ordered_json values{{"rows", cell.shape[0]},
                                {"channels", cell.channels},
                                {"shape", cell.shape.to_string()},
                                {"us", together.median * kMicro},
                                {"us_p10", together.p10 * kMicro},
                                {"us_p90", together.p90 * kMicro},
                                {"batch_norm_us", alone.median * kMicro},
                                {"peak_mib", peak[0]},
                                {"repetitions", together.repetitions}};
  if (device.is_gpu()) {
    const double bytes = kPasses * static_cast<double>(cell.shape.size()) * (options.bf16 ? 2 : 4);
    values["bound_us"] = bytes / bytes_per_second * kMicro;
  }
  return values;
}

}  // namespace

void measure_sync_batch_norm(BenchDevice& device, const TrainingOptions& options) {
  const bool prints = device.world().rank() == 0;
  nlohmann::ordered_json document{{"ranks", device.world().size()},
                                  {"device", device.backend().name()},
                                  {"dtype", options.bf16 ? "bf16" : "fp32"}};
  if (!device.path().empty()) {
    document["path"] = device.path();
    document["why_path"] = device.why_path();
    if (prints)
      std::printf("# collectives on GPU memory take the path %s: %s\n", device.path().c_str(),
                  device.why_path().c_str());
  }
  double bytes_per_second = 0;
  if (device.is_gpu()) {
    bytes_per_second = copy_rate(device, options.copy_bytes, options.limits);
    document["copy_gb_per_second"] = bytes_per_second / 1e9;
  }
  if (prints) {
    std::printf("# forward + backward, us: the slowest rank's after a barrier (median)\n");
    std::printf("%6s %9s %14s %11s %9s%s\n", "rows", "channels", "SyncBatchNorm", "BatchNorm",
                "peak/MiB", device.is_gpu() ? "  bound/us   ratio" : "");
  }
  for (const NormCell& cell : cells_of(options)) {
    const auto values = measure_cell(device, cell, options, bytes_per_second);
    document["cells"].push_back(values);
    if (prints) report_cell(cell, values);
  }
  if (prints && !options.json_path.empty()) write_document(options.json_path, document);
}

}  // namespace dlaunch::bench
