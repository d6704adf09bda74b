#include "tools/bench/training/train.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/base/job_environment.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/comm/counting_communicator.h"
#include "tools/bench/measure/memory.h"
#include "tools/bench/measure/statistics.h"
#include "tools/bench/report.h"
#include "trainers/config/config.h"
#include "trainers/device/training_device.h"
#include "trainers/training/datasets.h"
#include "trainers/training/machine.h"
#include "trainers/training/trainer.h"

namespace dlaunch::bench {
namespace {

constexpr double kMilli = 1e3;
constexpr std::size_t kGpuSteps = 10;  // between lines of the metrics: each waits for the GPU
constexpr double kMiB = 1 << 20;

/// A line of the metrics makes the host wait for a GPU, so there it is about several steps.
std::size_t steps_of_a_line(const TrainConfig& config) {
  return config.device == DeviceKind::kCuda ? kGpuSteps : 1;
}

std::size_t lines_of(std::size_t steps, std::size_t group) {
  return (steps + group - 1) / group;
}

/// The configuration with as many steps as wanted, all of them in lines of the metrics file.
TrainConfig config_to_measure(const TrainingOptions& options, std::size_t ranks,
                              const std::string& folder) {
  std::vector<ConfigOverride> overrides(options.overrides.begin(), options.overrides.end());
  const TrainConfig wanted = load_train_config(options.config, overrides);
  const std::size_t group = steps_of_a_line(wanted);
  const std::size_t steps =
      group * (lines_of(options.warmup_steps, group) + lines_of(options.steps, group));
  for (const std::string& word :
       {"output.directory=" + folder, std::string("output.metrics=metrics.jsonl"),
        "output.log_every=" + std::to_string(group), std::string("output.progress=none"),
        std::string("output.tensorboard="), std::string("output.trace="),
        std::string("checkpoint.final=false"), std::string("checkpoint.every_steps=0"),
        std::string("checkpoint.every_epochs=0"), std::string("checkpoint.keep_best=false"),
        std::string("checkpoint.resume=none"), std::string("train.validate_every=0"),
        std::string("train.max_seconds=0"),
        std::string("train.drop_last=true"),  // a line does not tell of a step with fewer images
        "train.max_steps=" + std::to_string(steps), "train.epochs=" + std::to_string(steps)}) {
    overrides.emplace_back(word);
  }
  if (!options.own_data && wanted.data.set != DataSet::kSynthetic) {
    const DataShape shape = data_shape(wanted.data);
    const std::size_t step_size = wanted.samples_per_step(ranks);
    overrides.emplace_back("data.set=synthetic");
    overrides.emplace_back("data.image_size=[]");      // which they have
    overrides.emplace_back("data.synthetic.noise=0");  // whose making would be measured too
    for (const auto& [key, value] : {std::pair{"classes", shape.classes},
                                     {"height", shape.image.height},
                                     {"width", shape.image.width},
                                     {"train_size", step_size * std::min<std::size_t>(steps, 16)},
                                     {"test_size", std::max(shape.classes, ranks)}}) {
      overrides.emplace_back("data.synthetic." + std::string(key) + "=" + std::to_string(value));
    }
  }
  return load_train_config(options.config, overrides);
}

struct StepTimes {
  std::vector<double> seconds;  // of the steps that count
  double images = 0;            // of these steps
};

/// From the lines of the metrics file; the first `warmup` do not count. A step is of all images if
/// there are fewer than it would take.
StepTimes read_steps(const std::string& path, std::size_t warmup, double images_per_step) {
  std::ifstream file(path);
  StepTimes times;
  std::size_t lines = 0;
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text);
    if (line.at("event") == "start")
      images_per_step = std::min(images_per_step, line.at("training_images").get<double>());
    if (line.at("event") != "step" || lines++ < warmup) continue;
    times.seconds.push_back(images_per_step / line.at("images_per_second").get<double>());
    times.images += images_per_step;
  }
  return times;
}

/// Bytes that a rank sends for the reductions of all steps that called for them, if they are rings.
double ring_bytes(const CountingCommunicator& world) {
  const auto ranks = static_cast<double>(world.size());
  const auto bytes = [&](CollectiveKind kind) { return static_cast<double>(world.bytes(kind)); };
  return (ranks - 1) *
         ((2 * bytes(CollectiveKind::kAllReduce) + bytes(CollectiveKind::kReduceScatter)) / ranks +
          bytes(CollectiveKind::kAllGather));
}

struct RankFigures {
  double peak_mib = 0;           // the largest
  double sent_mib_per_step = 0;  // the largest
};

void report(const TrainingOptions& options, const TrainConfig& config,
            const dlaunch::Summary& summary, StepTimes times, const RankFigures& figures) {
  std::sort(times.seconds.begin(), times.seconds.end());
  double total = 0;
  for (const double seconds : times.seconds) total += seconds;
  nlohmann::ordered_json document;
  document["config"] = options.config;
  document["overrides"] = options.overrides;
  document["model"] = config.model;
  document["compute_type"] = config.resolved.at("train").at("compute_type");
  document["ranks"] = summary.ranks;
  document["images_per_step"] = times.images / static_cast<double>(times.seconds.size());
  document["accumulation_steps"] = config.accumulation_steps;
  document["steps"] = times.seconds.size();
  document["repeated_steps"] = summary.repeated_steps;
  if (!summary.why_not_repeated.empty()) document["why_not_repeated"] = summary.why_not_repeated;
  document["images_per_second"] = times.images / total;
  for (const auto& [name, fraction] :
       {std::pair{"ms_p10", 0.1}, {"ms", 0.5}, {"ms_p90", 0.9}, {"ms_most", 1.0}}) {
    document[name] = quantile(times.seconds, fraction) * kMilli;
  }
  const double waiting = summary.communication_seconds / summary.train_seconds;
  const dlaunch::StepTimes step = summary.use.mean();
  const double exchange = step.exchange / step.total();
  document["communication_share"] = waiting;
  document["exchange_share"] = exchange;
  document["peak_mib"] = figures.peak_mib;
  document["sent_mib_per_step"] = figures.sent_mib_per_step;
  document["tensor_mib"] = static_cast<double>(summary.peak_tensor_bytes) / kMiB;

  std::printf("%s, %s, %s, %.0f images a step\n", config.model.c_str(),
              document["compute_type"].get<std::string>().c_str(),
              counted(summary.ranks, "rank").c_str(), document["images_per_step"].get<double>());
  std::printf("  images/s       %.1f\n", times.images / total);
  std::printf("  step           %.2f ms (10 %% %.2f, 90 %% %.2f, longest %.2f)\n",
              document["ms"].get<double>(), document["ms_p10"].get<double>(),
              document["ms_p90"].get<double>(), document["ms_most"].get<double>());
  if (config.device == DeviceKind::kCuda) {
    const std::string& why = summary.why_not_repeated;
    std::printf("  graphs         repeated for %zu of all %zu steps%s%s\n", summary.repeated_steps,
                summary.steps, why.empty() ? "" : ": ", why.c_str());
  }
  std::printf(
      "  communication  %.2f %% of the training time waiting, %.2f %% but for slower ranks\n",
      100 * waiting, 100 * exchange);
  std::printf("  sent           %.2f MiB per rank and step, by ring algorithms\n",
              figures.sent_mib_per_step);
  std::printf("  peak memory    %.1f MiB per rank, %.1f of it tensors\n", figures.peak_mib,
              document["tensor_mib"].get<double>());
  if (!options.json_path.empty()) write_document(options.json_path, document);
}

}  // namespace

void measure_training(Communicator& world, const TrainingOptions& options) {
  const TemporaryFolder folder;  // every rank reads the configuration; rank 0 writes the metrics
  const auto ranks = static_cast<std::size_t>(world.size());
  const TrainConfig config = config_to_measure(options, ranks, folder.path());
  const Machine machine = read_machine(read_job_environment().value_or_throw());
  TrainingDevice device(config, machine);
  device.connect(config, world);
  const TrainingPlace place = device.place();
  CountingCommunicator counted(place.world);
  Trainer trainer(config,
                  {.world = counted,
                   .backend = place.backend,
                   .device_world = place.device_world,
                   .remark = place.remark},
                  {.out = std::cout}, machine);
  const dlaunch::Summary summary = trainer.run();
  const auto steps = static_cast<double>(summary.steps - summary.repeated_steps);
  std::array<double, 2> most{peak_mib(), ring_bytes(counted) / kMiB / steps};
  throw_if_error(world.all_reduce(most, ReduceOp::kMax));
  if (world.rank() != 0) return;
  const auto images = static_cast<double>(config.samples_per_step(ranks));
  report(options, config, summary,
         read_steps(folder.path() + "/metrics.jsonl",
                    lines_of(options.warmup_steps, steps_of_a_line(config)), images),
         {most[0], most[1]});
}

}  // namespace dlaunch::bench
