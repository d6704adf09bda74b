// Training on a device, which here is a fake one: its kernels run later than they are started, the
// host cannot see its memory, and collectives on it take streams of their own.
#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/cpu/cpu_backend.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/device/device_communicator.h"
#include "tests/support/thread_ranks.h"
#include "tests/trainers/fake_gpu.h"
#include "trainers/training/trainer.h"

namespace dlaunch::testing {

enum class On { kCpu, kDevice, kDeviceWithGraphs };

class DeviceTraining : public ::testing::Test {
 protected:
  /// Full steps of 16 samples, and one of 3 at the end of an epoch, which leaves ranks without any.
  nlohmann::json config(const nlohmann::json& changes) const {
    nlohmann::json json = {
        {"data",
         {{"set", "synthetic"},
          {"synthetic", {{"classes", 3}, {"train_size", 67}, {"test_size", 6}}}}},
        {"model", {{"name", "small_cnn"}}},
        {"optimizer", {{"learning_rate", 0.01}, {"momentum", 0.5}}},
        {"ema", {{"decay", 0.9}, {"every", 2}}},
        {"parallel", {{"bucket_mib", 0.1}, {"first_bucket_mib", 0.01}}},
        {"train", {{"epochs", 2}, {"global_batch_size", 16}, {"accumulation_steps", 2}}},
        {"output",
         {{"directory", directory_}, {"progress", "none"}, {"tensorboard", ""}, {"log_every", 3}}}};
    json.merge_patch(changes);
    return json;
  }

  struct Outcome {
    std::vector<float> parameters;  // the same on all ranks
    Summary summary;
    int repeats = 0;  // of steps that were recorded
    std::string screen;
  };

  /// Trains on `ranks` threads.
  Outcome train(int ranks, On where, const nlohmann::json& changes = nlohmann::json::object(),
                DevicePathKind path = DevicePathKind::kIpc,
                const FakeDeviceOptions& options = {}) const {
    nlohmann::json json = config(changes);
    json["train"]["cuda_graphs"] = where == On::kDeviceWithGraphs;
    const TrainConfig wanted = read_train_config(json, "test");
    Outcome outcome;
    std::vector<std::vector<float>> parameters(static_cast<std::size_t>(ranks));
    std::ostringstream screen;
    ThreadWorld network(ranks);
    run_threads_as_ranks(network, ranks, [&](Communicator& world) {
      std::shared_ptr<FakeDevice> device;
      std::unique_ptr<DeviceWorld> on_device;
      std::unique_ptr<nn::Backend> backend;
      if (where == On::kCpu) {
        backend = nn::make_cpu_backend();
      } else {
        device = std::make_shared<FakeDevice>(options);
        backend = make_fake_gpu(device);
        on_device = make_device_communicator(
                        world.split(0, world.rank()).value_or_throw(), device,
                        {.path = path, .memory = MemoryPathOptions{.slot_bytes = 1 << 16}})
                        .value_or_throw();
      }
      {
        Trainer trainer(wanted,
                        {.world = on_device ? *on_device : world,
                         .backend = *backend,
                         .device_world = on_device.get()},
                        {.out = screen}, {});
        const Summary summary = trainer.run();
        auto& own = parameters[static_cast<std::size_t>(world.rank())];
        own = trainer.parameters().values.host_values<float>();
        if (world.rank() == 0)
          outcome = {own, summary, device == nullptr ? 0 : device->replays(), ""};
      }
      on_device.reset();  // before the stream that it used
    });
    for (const std::vector<float>& of_rank : parameters) EXPECT_EQ(of_rank, outcome.parameters);
    outcome.screen = screen.str();
    return outcome;
  }

  /// What a run that diverges says.
  std::string divergence(int ranks, On where, const nlohmann::json& changes) const {
    try {
      train(ranks, where, changes);
    } catch (const Divergence& divergence) {
      return divergence.what();
    }
    return "it ended well";
  }

  std::vector<nlohmann::json> metrics() const { return metrics(directory_); }
  static std::vector<nlohmann::json> metrics(const std::string& folder) {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
};

}  // namespace dlaunch::testing
