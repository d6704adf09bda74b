#include "tools/bench/relaunch.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace dlaunch::bench {

void relaunch_under_dlaunch(int nproc, int argc, char** argv) {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path beside = self.parent_path() / "dlaunch";
  std::vector<std::string> words = {std::filesystem::exists(beside) ? beside.string() : "dlaunch",
                                    "--nproc", std::to_string(nproc), self.string()};
  words.insert(words.end(), argv + 1, argv + argc);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
}

}  // namespace dlaunch::bench
