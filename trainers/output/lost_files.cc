#include "trainers/output/lost_files.h"

#include <algorithm>
#include <stdexcept>

#include "runtime/base/status.h"

namespace dlaunch {

void LostFiles::try_to_write(const std::string& name, const std::function<void()>& write) {
  try {
    write();
  } catch (const StatusError&) {
    throw;
  } catch (const std::runtime_error& error) {
    add(name, error.what());
  }
}

bool LostFiles::contains(const std::string& name) const {
  return std::ranges::any_of(files_, [&](const auto& file) { return file.first == name; });
}

std::string LostFiles::why() const {
  std::string line;
  for (const auto& [name, why] : files_) line += (line.empty() ? "" : "; ") + why;
  return line;
}

}  // namespace dlaunch
