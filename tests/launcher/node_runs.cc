#include "tests/launcher/node_runs.h"

#include <atomic>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/ranks/free_port.h"
#include "runtime/base/token.h"

namespace dlaunch::testing {

TokenFile::TokenFile() {
  static std::atomic<int> count = 0;
  path_ =
      ::testing::TempDir() + "/token." + std::to_string(getpid()) + "." + std::to_string(++count);
  std::ofstream(path_) << token_to_hex(make_token()) << '\n';
  chmod(path_.c_str(), 0600);
}

TokenFile::~TokenFile() {
  unlink(path_.c_str());
}

std::string free_endpoint() {
  return "127.0.0.1:" + std::to_string(*find_free_port());
}

std::string without_waiting(const std::string& error) {
  std::string rest;
  std::istringstream lines(error);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("dlaunch: waiting for")) rest += line + "\n";
  return rest;
}

Command Nodes::command(const Strings& options, const Strings& program) const {
  Command command{.arguments = {built_program("dlaunch"), "--nnodes", nnodes_, "--rdzv-endpoint",
                                endpoint_, "--token-file", token_.path(), "--bind", "none"}};
  command.arguments.insert(command.arguments.end(), options.begin(), options.end());
  command.arguments.emplace_back("--");
  command.arguments.insert(command.arguments.end(), program.begin(), program.end());
  return command;
}

std::size_t Nodes::start(const Strings& options, const Strings& program) {
  processes_.push_back(std::make_unique<Subprocess>(command(options, program)));
  return processes_.size() - 1;
}

std::size_t Nodes::start_ranks(const Strings& options, const Strings& actions) {
  Strings program{built_program("test_rank")};
  program.insert(program.end(), actions.begin(), actions.end());
  return start(options, program);
}

bool Nodes::knows_of_end(std::size_t node, std::size_t other) const {
  const Command status{.arguments = {built_program("dlaunch"), "status", "--no-stacks",
                                     std::to_string(processes_.at(node)->pid())}};
  const std::string line = "has ended: node " + std::to_string(other) + " ";
  const Deadline deadline = soon();
  while (run_command(status, soon()).out.find(line) == std::string::npos) {
    if (deadline.expired()) return false;
  }
  return true;
}

}  // namespace dlaunch::testing
