#include "tools/bench/relaunch.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::bench {
namespace {

std::filesystem::path self() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

/// The program of this name beside this one, or else in PATH.
std::string program(const char* name) {
  const std::filesystem::path beside = self().parent_path() / name;
  return std::filesystem::exists(beside) ? beside.string() : name;
}

void become(std::vector<std::string> words, int argc, char** argv) {
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
}

}  // namespace

void relaunch_under_dlaunch(int nproc, int argc, char** argv) {
  become({program("dlaunch"), "--nproc", std::to_string(nproc), self().string()}, argc, argv);
}

bool is_for_training_program(int argc, char** argv) {
  if (argc < 2) return false;
  const std::string_view word = argv[1];
  return word == "train" || word == "syncbn" || word == "device";
}

void become_training_program(int argc, char** argv) {
  become({program("dbench_training")}, argc, argv);
}

}  // namespace dlaunch::bench
