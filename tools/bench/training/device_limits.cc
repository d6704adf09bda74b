#include "tools/bench/training/device_limits.h"

#include <cstdio>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "nn/core/ops.h"
#include "nn/core/tensor.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/report.h"
#include "tools/bench/world_ranks.h"

namespace dlaunch::bench {
namespace {

constexpr double kBillion = 1e9;

double median_seconds(BenchDevice& device, const Limits& limits, const std::function<void()>& run) {
  WorldRanks ranks(device.world());
  return summarize(repeat(ranks, limits, device.timed({}, run))).median;
}

/// Operations per second of a product of two square matrices.
double product_rate(BenchDevice& device, DType type, std::int64_t side, const Limits& limits) {
  nn::Backend& backend = device.backend();
  const nn::Shape shape{side, side};
  const nn::Tensor a = nn::Tensor::zeros(backend, shape, type);
  const nn::Tensor b = nn::Tensor::zeros(backend, shape, type);
  const nn::Tensor c = nn::Tensor::zeros(backend, shape, type);
  nn::Generator generator(1);
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  for (const nn::Tensor& matrix : {a, b}) {  // zeros would cost less power, and flatter
    generator.fill_uniform(values, -1, 1);
    const nn::Tensor made = convert(nn::Tensor::from<float>(backend, shape, values), type);
    backend.copy(matrix.write().data, made.read().data,
                 static_cast<std::size_t>(shape.size()) * size_of(type));
  }
  const double seconds = median_seconds(device, limits, [&] {
    backend.matmul({.m = side, .n = side, .k = side, .a = a.read(), .b = b.read(), .d = c.write()});
  });
  const auto n = static_cast<double>(side);
  return 2 * n * n * n / seconds;
}

/// So many small all_reduces in one line, in which ranks that share a GPU take a turn each.
constexpr int kInLine = 200;

/// add(how, seconds of each): as they are queued one after the other, and then as one recording, if
/// the path has such.
void measure_small_sums(BenchDevice& device, const Limits& limits,
                        const std::function<void(const char*, double)>& add) {
  constexpr std::size_t kCount = 64;
  nn::Backend& backend = device.backend();
  const nn::Tensor values = nn::Tensor::zeros(backend, {kCount});
  const auto queue = [&] {
    for (int i = 0; i < kInLine; ++i)
      throw_if_error(device.world()
                         .all_reduce(Buffer(values.data<float>(), kCount, DType::kF32))
                         .within("small sums"));
  };
  add("queued", median_seconds(device, limits, queue) / kInLine);
  DeviceWorld* const world = device.device_world();
  if (world == nullptr || !world->why_not_recorded().empty()) return;
  {
    const auto recording = backend.record(queue);
    const auto replay = [&] {
      throw_if_error(world->repeat([&] { recording->replay(0); }).within("recorded sums"));
    };
    add("recorded", median_seconds(device, limits, replay) / kInLine);
    backend.synchronize();
  }
  world->forget_recordings();
}

}  // namespace

double copy_rate(BenchDevice& device, std::size_t bytes, const Limits& limits) {
  nn::Backend& backend = device.backend();
  const nn::Shape shape{static_cast<std::int64_t>(bytes)};
  const nn::Tensor from = nn::Tensor::zeros(backend, shape, DType::kU8);
  const nn::Tensor to = nn::Tensor::zeros(backend, shape, DType::kU8);
  const double seconds = median_seconds(device, limits, [&] {
    backend.copy(to.data<std::uint8_t>(), from.data<const std::uint8_t>(), bytes);
  });
  return 2 * static_cast<double>(bytes) / seconds;
}

namespace {

void add_small_sums(BenchDevice& device, const Limits& limits, nlohmann::ordered_json& document) {
  constexpr double kMicro = 1e6;
  measure_small_sums(device, limits, [&](const char* how, double seconds) {
    document["cells"].push_back(
        {{"what", "sum"}, {"how", how}, {"unit", "us"}, {"us", seconds * kMicro}});
    if (device.world().rank() == 0)
      std::printf("%-6s %-8s %12.1f us: an all_reduce of 256 bytes, of %d in a line\n", "sum", how,
                  seconds * kMicro, kInLine);
    std::fflush(stdout);  // if the recording fails, this is known
  });
}

}  // namespace

void measure_device(BenchDevice& device, const TrainingOptions& options) {
  nlohmann::ordered_json document{{"operation", "device"}, {"ranks", device.world().size()}};
  const auto add = [&](const char* what, const char* how, const char* unit, double rate) {
    document["cells"].push_back(
        {{"what", what}, {"how", how}, {"unit", unit}, {"rate", rate / kBillion}});
    if (device.world().rank() == 0)
      std::printf("%-6s %-8s %12.1f %s\n", what, how, rate / kBillion, unit);
    std::fflush(stdout);  // the next one may take a while
  };
  if (device.world().rank() == 0)
    std::printf("# of one rank, from the slowest one's time; copied bytes count twice\n");
  constexpr std::int64_t kOfGpu = 8192;
  constexpr std::int64_t kOfCpu = 2048;  // takes as long, a thousand times slower
  const bool on_gpu = options.device == BenchDeviceKind::kCuda;
  const std::int64_t side = options.matrix != 0 ? options.matrix : on_gpu ? kOfGpu : kOfCpu;
  add("copy", "memcpy", "GB/s", copy_rate(device, options.copy_bytes, options.limits));
  add("matmul", "fp32", "GFLOP/s", product_rate(device, DType::kF32, side, options.limits));
  add("matmul", "bf16", "GFLOP/s", product_rate(device, DType::kBF16, side, options.limits));
  if (device.world().size() > 1) add_small_sums(device, options.limits, document);
  if (device.world().rank() == 0 && !options.json_path.empty())
    write_document(options.json_path, document);
}

}  // namespace dlaunch::bench
