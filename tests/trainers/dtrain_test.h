// A fixture for tests of dtrain as a program: a folder with a small configuration, run.json, and
// its output in out/.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/temporary_folder.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {

inline constexpr const char* kSmallRun = R"({
  "data": {"set": "synthetic",
           "synthetic": {"classes": 4, "train_size": 130, "test_size": 37}},
  "model": {"name": "small_cnn"},
  "optimizer": {"learning_rate": 0.01, "momentum": 0.5},
  "train": {"epochs": 2, "batch_size_per_rank": 8, "accumulation_steps": 2}
})";

class DtrainTest : public ::testing::Test {
 protected:
  void SetUp() override { write("run.json", kSmallRun); }

  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(
        std::filesystem::path(directory_ + "/" + name).parent_path());
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
  }

  /// Runs dtrain on `ranks` ranks (0: without dlaunch) with run.json and these arguments, dlaunch
  /// with `options`.
  CompletedProcess dtrain(int ranks, const std::vector<std::string>& arguments,
                          const std::string& config = "run.json",
                          const std::vector<std::string>& options = {}) const {
    std::vector<std::string> command;
    if (ranks > 0) {
      command = {built_program("dlaunch"), "--nproc", std::to_string(ranks)};
      command.insert(command.end(), options.begin(), options.end());
      command.emplace_back("--");
    }
    command.insert(command.end(), {built_program("dtrain"), directory_ + "/" + config, "--set",
                                   "output.directory=" + directory_ + "/out"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    return testing::run_command({.arguments = command, .environment = environment_},
                                Deadline::after(std::chrono::seconds(100)));
  }

  std::vector<nlohmann::json> metrics(const std::string& name = "metrics.jsonl") const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(directory_ + "/out/" + name);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  /// Lines of the metrics with this event.
  std::vector<nlohmann::json> events(const std::string& name) const {
    std::vector<nlohmann::json> found;
    for (const nlohmann::json& line : metrics())
      if (line["event"] == name) found.push_back(line);
    return found;
  }

  /// Lines of stderr that ranks under dlaunch wrote.
  static std::vector<std::string> complaints(const CompletedProcess& process) {
    std::vector<std::string> lines;
    std::istringstream text(process.error);
    for (std::string line; std::getline(text, line);)
      if (line.find("] dtrain: ") != std::string::npos) lines.push_back(line);
    return lines;
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
  std::vector<std::pair<std::string, std::string>> environment_{{"OMP_NUM_THREADS", "1"}};
};

}  // namespace dlaunch::testing
