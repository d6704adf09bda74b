#include "launcher/ranks/topology.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <tuple>

#include "launcher/base/number_list.h"

namespace dlaunch {
namespace {

using Groups = std::map<int, int>;  // by hardware thread: the lowest one of its group

std::vector<int> read_list(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path) >> std::ws, text);
  return parse_number_list(text, 1 << 20).value_or(std::vector<int>());
}

// One file for each group: every member lists them all.
Groups read_groups(const std::vector<int>& numbers, const std::string& sys, const char* file) {
  Groups groups;
  for (const int number : numbers) {
    if (groups.contains(number)) continue;
    const auto members = read_list(sys + "/cpu/cpu" + std::to_string(number) + "/" + file);
    for (const int member : members) groups[member] = members.front();
  }
  return groups;
}

Groups read_nodes(const std::string& sys) {
  Groups nodes;
  for (const int node : read_list(sys + "/node/has_cpu")) {
    for (const int number : read_list(sys + "/node/node" + std::to_string(node) + "/cpulist")) {
      nodes[number] = node;
    }
  }
  return nodes;
}

int group_of(const Groups& groups, int number, int otherwise) {
  const auto found = groups.find(number);
  return found == groups.end() ? otherwise : found->second;
}

}  // namespace

std::vector<HardwareThread> read_topology(const std::vector<int>& numbers, const std::string& sys) {
  const Groups nodes = read_nodes(sys);
  const Groups packages = read_groups(numbers, sys, "topology/package_cpus_list");
  const Groups caches = read_groups(numbers, sys, "cache/index3/shared_cpu_list");
  const Groups cores = read_groups(numbers, sys, "topology/core_cpus_list");
  std::vector<HardwareThread> threads;
  threads.reserve(numbers.size());
  for (const int number : numbers) {
    threads.push_back({.number = number,
                       .node = group_of(nodes, number, 0),
                       .package = group_of(packages, number, 0),
                       .cache = group_of(caches, number, 0),
                       .core = group_of(cores, number, number)});
  }
  const auto place = [](const HardwareThread& thread) {
    return std::tie(thread.node, thread.package, thread.cache, thread.core, thread.number);
  };
  std::sort(threads.begin(), threads.end(),
            [&](const auto& a, const auto& b) { return place(a) < place(b); });
  return threads;
}

}  // namespace dlaunch
