// Where the store of a running job is, and the secret by which it lets one in.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "runtime/base/status.h"

namespace dlaunch {

struct StoreLocation {
  std::string address;  // host:port
  std::string token;    // raw bytes
  std::string prefix;   // of all keys
};

/// What the command line says; whatever it leaves open comes from the environment: that of a rank
/// `pid` if given (its owner may read it), else this process's own. kInvalidArgument names what is
/// missing.
struct StoreLocationOptions {
  std::string endpoint;
  std::string token_file;
  std::optional<std::string> prefix;
  std::optional<pid_t> pid;
};
Result<StoreLocation> locate_store(const StoreLocationOptions& options);

}  // namespace dlaunch
