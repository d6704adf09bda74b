// The rules of docs/architecture.md that a compiler does not check: no include goes upward, no
// source file is longer than a reader will bear, and the documents' links lead somewhere.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

namespace fs = std::filesystem;

struct SourceFile {
  std::string path;  // from the root of the repository
  std::vector<std::string> lines;
};

const char* const kFolders[] = {"runtime", "transport", "nn",  "launcher", "trainers",
                                "tools",   "tests",     ".ci", "configs"};

SourceFile read_source(const fs::path& path) {
  SourceFile source{.path = fs::relative(path, SOURCE_ROOT).string(), .lines = {}};
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) source.lines.push_back(line);
  return source;
}

std::vector<SourceFile> read_sources() {
  std::vector<SourceFile> sources;
  const fs::path root(SOURCE_ROOT);
  for (const char* folder : kFolders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (!entry.is_regular_file() || entry.path().extension() == ".pyc") continue;
      sources.push_back(read_source(entry.path()));
    }
  }
  return sources;
}

std::vector<SourceFile> read_documents() {
  std::vector<SourceFile> documents{read_source(fs::path(SOURCE_ROOT) / "README.md")};
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(SOURCE_ROOT) / "docs")) {
    if (entry.path().extension() == ".md") documents.push_back(read_source(entry.path()));
  }
  return documents;
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || path.starts_with(folder + "/");
}

// What the files of a folder may include, besides files of the folder itself.
const std::map<std::string, std::vector<std::string>> kMayInclude{
    {"runtime/base", {}},
    {"transport", {"runtime/base"}},
    {"runtime/rendezvous", {"runtime/base"}},
    {"runtime/collective",
     {"runtime/base", "transport", "runtime/comm/communicator.h", "runtime/comm/buffer.h"}},
    {"runtime/comm", {"runtime/base", "transport", "runtime/rendezvous", "runtime/collective"}},
    {"runtime/mpi", {"runtime/base", "transport", "runtime/collective", "runtime/comm"}},
    {"runtime/device", {"runtime/base", "transport", "runtime/collective", "runtime/comm"}},
    {"runtime/cuda",
     {"runtime/base", "transport", "runtime/collective", "runtime/comm", "runtime/device"}},
    {"runtime/parallel", {"runtime/base", "runtime/collective/reduction.h", "runtime/comm"}},
    {"launcher", {"runtime/base", "runtime/rendezvous"}},
    {"nn",
     {"runtime/base", "runtime/comm/communicator.h", "runtime/comm/buffer.h",
      "runtime/comm/work.h"}},
    {"nn/parallel",
     {"runtime/base", "runtime/comm/communicator.h", "runtime/comm/buffer.h",
      "runtime/comm/objects.h", "runtime/device/device_communicator.h", "runtime/parallel", "nn"}},
    {"trainers", {"runtime", "nn"}},
    {"tools", {"runtime", "transport", "nn"}},
    {"tools/bench/training", {"runtime", "nn", "trainers", "tools/bench"}},
    {"tests/support", {"runtime", "transport"}},
    {"tests", {"tests/support", "runtime", "transport", "nn", "launcher", "trainers", "tools"}},
};

// The longest folder of kMayInclude that holds the file.
std::string layer_of(const std::string& path) {
  std::string layer;
  for (const auto& [folder, may_include] : kMayInclude) {
    if (lies_in(path, folder) && folder.size() > layer.size()) layer = folder;
  }
  return layer;
}

bool may_include(const std::string& layer, const std::string& included) {
  if (layer_of(included) == layer) return true;
  const auto& allowed = kMayInclude.at(layer);
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& folder) { return lies_in(included, folder); });
}

TEST(SourceTree, HasNoIncludeThatGoesUpward) {
  const std::regex include(R"rx(^\s*#\s*include\s+["<](?:dlaunch/)?([^">]+)[">].*)rx");
  int includes = 0;
  for (const auto& source : read_sources()) {
    const std::string layer = layer_of(source.path);
    std::smatch match;
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      if (!std::regex_match(source.lines[i], match, include)) continue;
      const std::string included = match[1];
      if (!fs::exists(fs::path(SOURCE_ROOT) / included)) continue;  // not of this project
      ++includes;
      const bool allowed = !layer.empty() && may_include(layer, included);
      EXPECT_TRUE(allowed || lies_in(source.path, "tests/tools/outside"))
          << source.path << ":" << i + 1 << " includes " << included << ", but " << layer
          << " may not see that";
    }
  }
  EXPECT_GT(includes, 100) << "the check does not find the sources";
}

TEST(SourceTree, IsReadAsTheRulesMean) {
  EXPECT_TRUE(may_include("nn", "runtime/comm/communicator.h"));
  EXPECT_FALSE(may_include("nn", "runtime/comm/plan_cache.h"));
  EXPECT_FALSE(may_include("nn", "transport/endpoint.h"));
  EXPECT_FALSE(may_include("transport", "runtime/comm/communicator.h"));
  EXPECT_FALSE(may_include("runtime/parallel", "nn/core/tensor.h"));
  EXPECT_FALSE(may_include("launcher", "runtime/comm/communicator.h"));
  EXPECT_FALSE(may_include("runtime/base", "transport/endpoint.h"));
  EXPECT_FALSE(may_include("tests/support", "nn/core/tensor.h"));
  EXPECT_TRUE(may_include("tests", "nn/core/tensor.h"));
  EXPECT_EQ(layer_of("tests/support/x.h"), "tests/support");
  EXPECT_EQ(layer_of("tests/nn/x.h"), "tests");
  EXPECT_EQ(layer_of("runtime/basement/x.h"), "");
}

TEST(SourceTree, HasNoFileOfMoreThanSixHundredLines) {
  for (const auto& source : read_sources()) {
    EXPECT_LE(source.lines.size(), 600U) << source.path;
  }
}

TEST(Documents, BeginWithATitleAndLinkToWhatExists) {
  const std::regex link(R"rx(\]\(([^)#]+)(#[^)]*)?\))rx");
  int links = 0;
  for (const auto& document : read_documents()) {
    ASSERT_FALSE(document.lines.empty()) << document.path;
    EXPECT_TRUE(document.lines[0].starts_with("# ")) << document.path;
    const fs::path folder = (fs::path(SOURCE_ROOT) / document.path).parent_path();
    bool in_code = false;
    for (const std::string& line : document.lines) {
      if (line.starts_with("```")) in_code = !in_code;
      if (in_code) continue;
      for (std::sregex_iterator at(line.begin(), line.end(), link), end; at != end; ++at) {
        const std::string target = (*at)[1];
        if (target.starts_with("http")) continue;
        ++links;
        EXPECT_TRUE(fs::exists(folder / target)) << document.path << " links to " << target;
      }
    }
  }
  EXPECT_GT(links, 50) << "the check does not find the links";
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Its figures and plots are those of docs/results/report, which is written anew from time to time.
TEST(Readme, NamesTheDayOfTheReportThatItShows) {
  const char* const months[] = {"January",   "February", "March",    "April",
                                "May",       "June",     "July",     "August",
                                "September", "October",  "November", "December"};
  const std::string results = text_of(fs::path(SOURCE_ROOT) / "docs/results/report/results.json");
  std::smatch begun;
  ASSERT_TRUE(
      std::regex_search(results, begun, std::regex("\"begun\": \"(\\d{4})-(\\d{2})-(\\d{2})T")));
  const std::string day = std::to_string(std::stoi(begun[3])) + " " +
                          months[std::stoi(begun[2]) - 1] + " " + std::string(begun[1]);
  const std::string readme = text_of(fs::path(SOURCE_ROOT) / "README.md");
  for (const char* before : {"beside the best of its peers \\(", "a machine with two cores, on "}) {
    std::smatch date;
    ASSERT_TRUE(std::regex_search(
        readme, date, std::regex(std::string(before) + "(\\d{1,2} [A-Z][a-z]+ \\d{4})")))
        << before;
    EXPECT_EQ(date[1], day) << before;
  }
}

}  // namespace
}  // namespace dlaunch
