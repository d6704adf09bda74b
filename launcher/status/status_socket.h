// Where running jobs can be asked: a folder of this user, with a socket for each job.
//
// The folder is /tmp/dlaunch-UID, or the one that DLAUNCH_STATUS_DIR names; it must belong to this
// user and be closed to others. It is not in $XDG_RUNTIME_DIR, which jobs of cron and of clusters
// do not have, and which goes when the user logs out. A client sends one byte, a StatusRequest, and
// reads text to the end of the file. Each end checks that the other one is the same user (or root).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

enum class StatusRequest : char {
  kSummary = 'l',     // one line, see JobSummary
  kActivities = 'a',  // what the ranks are doing
  kStacks = 's',      // that, and their stacks
};

/// The folder, made if `create` is true. kNotFound if there is none, kInvalidArgument if it cannot
/// be used: it is somebody else's, or its path too long.
Result<std::string> status_folder(bool create);

/// The jobs that have a socket there, whether they still live or not.
std::vector<std::string> jobs_in(const std::string& folder);

/// Does not wait, nor does reading from the connection. kUnavailable if nobody listens there any
/// more, kTimeout if somebody does who takes no connections.
Result<Descriptor> connect_status(const std::string& path);
/// The socket appears in `folder` once it can be connected to.
Result<Descriptor> listen_status(const std::string& folder, const std::string& job_id);

/// Whether the other end is a process of this user or of root.
bool is_own_user(int socket);

}  // namespace dlaunch
