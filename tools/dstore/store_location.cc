#include "tools/dstore/store_location.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <utility>

#include "runtime/base/token.h"
#include "runtime/base/token_file.h"

namespace dlaunch {
namespace {

// A variable's value; empty if it is not set.
using Variables = std::function<std::string(const char* name)>;

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value == nullptr ? "" : value;
}

Result<Variables> variables_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/environ";
  std::ifstream file(path);
  std::map<std::string, std::string> all;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos) all[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  if (all.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "cannot read " + path + ": no such process, or another user's");
  }
  return Variables([all = std::move(all)](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? std::string() : found->second;
  });
}

Result<std::string> find_token(const StoreLocationOptions& options, const Variables& variable) {
  if (!options.token_file.empty()) return read_token_file(options.token_file);
  if (const std::string hex = variable("DLAUNCH_TOKEN"); !hex.empty()) {
    auto token = token_from_hex(hex);
    if (!token.ok()) return token.status().within("DLAUNCH_TOKEN");
    return token;
  }
  if (const std::string path = variable("DLAUNCH_TOKEN_FILE"); !path.empty()) {
    return read_token_file(path);
  }
  return Status(StatusCode::kInvalidArgument,
                "which secret? (--token-file FILE, --pid of a rank, or DLAUNCH_TOKEN)");
}

}  // namespace

Result<StoreLocation> locate_store(const StoreLocationOptions& options) {
  Variables variable = own_variable;
  if (options.pid) {
    auto theirs = variables_of(*options.pid);
    if (!theirs.ok()) return theirs.status();
    variable = *std::move(theirs);
  }
  StoreLocation location;
  location.address = options.endpoint.empty() ? variable("DLAUNCH_STORE") : options.endpoint;
  if (location.address.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  "which store? (--endpoint HOST:PORT, --pid of a rank, or DLAUNCH_STORE)");
  }
  location.prefix = options.prefix ? *options.prefix : variable("DLAUNCH_STORE_PREFIX");
  auto token = find_token(options, variable);
  if (!token.ok()) return token.status();
  location.token = *std::move(token);
  return location;
}

}  // namespace dlaunch
