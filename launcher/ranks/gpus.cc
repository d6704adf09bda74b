#include "launcher/ranks/gpus.h"

#include <cstdlib>
#include <sstream>

#include <unistd.h>

namespace dlaunch {

std::vector<std::string> visible_gpus() {
  std::vector<std::string> gpus;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream entries(visible);
    for (std::string entry; std::getline(entries, entry, ',');) {
      // Slurm's word for none is a device that CUDA does not find.
      if (entry.empty() || entry.front() == '-' || entry == "NoDevFiles") break;
      gpus.push_back(entry);
    }
    return gpus;
  }
  // A container has the devices it may use, which need not begin with 0; CUDA counts them from 0.
  constexpr int kMostGpus = 64;
  for (int device = 0; device < kMostGpus; ++device) {
    if (access(("/dev/nvidia" + std::to_string(device)).c_str(), F_OK) == 0) {
      gpus.push_back(std::to_string(gpus.size()));
    }
  }
  return gpus;
}

}  // namespace dlaunch
