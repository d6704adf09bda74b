#include "tools/bench/training/sync_batch_norm.h"

#include <array>
#include <cstdint>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "nn/core/autograd.h"
#include "nn/core/random.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/sync_batch_norm.h"
#include "tools/bench/measure/memory.h"
#include "tools/bench/measure/repeat.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/report.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr double kMicro = 1e6;

/// Forward and backward of `layer` on a batch of its own.
Summary measure_layer(WorldRanks& ranks, nn::Backend& backend, nn::Module& layer,
                      const nn::Shape& shape, const Limits& limits) {
  nn::Generator generator(1, static_cast<std::uint64_t>(ranks.rank()));
  nn::Tensor input = nn::Tensor::empty(backend, shape);
  const nn::Tensor gradient = nn::Tensor::empty(backend, shape);
  input.set_requires_grad(true);
  const auto prepare = [&](std::uint64_t /*repetition*/) {
    generator.fill_normal(input.values<float>(), 0, 1);
    generator.fill_normal(gradient.values<float>(), 0, 1);
    input.set_grad({});
  };
  const auto run = [&] { nn::backward(layer.forward(input), {.gradient = gradient}); };
  return summarize(repeat(ranks, limits, {.prepare = prepare, .run = run, .check = {}}));
}

}  // namespace

void measure_sync_batch_norm(Communicator& world, const TrainingOptions& options) {
  const auto backend = nn::make_cpu_backend();
  WorldRanks ranks(world);
  nlohmann::ordered_json document;
  document["ranks"] = world.size();
  if (world.rank() == 0) {
    std::printf("# forward + backward, us: the slowest rank's after a barrier (median)\n");
    std::printf("%6s %9s %14s %11s %9s\n", "rows", "channels", "SyncBatchNorm", "BatchNorm",
                "peak/MiB");
  }
  for (const int channels : options.channels) {
    for (const int batch : options.batches) {
      const nn::Shape shape{batch, channels};
      nn::SyncBatchNorm synchronised(*backend, channels, world);
      nn::BatchNorm local(*backend, channels);
      reset_peak();
      const Summary together = measure_layer(ranks, *backend, synchronised, shape, options.limits);
      std::array<double, 1> peak{peak_mib()};
      ranks.maximum(peak);
      const Summary alone = measure_layer(ranks, *backend, local, shape, options.limits);
      document["cells"].push_back({{"rows", batch},
                                   {"channels", channels},
                                   {"us", together.median * kMicro},
                                   {"us_p10", together.p10 * kMicro},
                                   {"us_p90", together.p90 * kMicro},
                                   {"batch_norm_us", alone.median * kMicro},
                                   {"peak_mib", peak[0]},
                                   {"repetitions", together.repetitions}});
      if (world.rank() != 0) continue;
      std::printf("%6d %9d %14.2f %11.2f %9.1f\n", batch, channels, together.median * kMicro,
                  alone.median * kMicro, peak[0]);
      std::fflush(stdout);
    }
  }
  if (world.rank() == 0 && !options.json_path.empty()) write_document(options.json_path, document);
}

}  // namespace dlaunch::bench
