// What the ranks of a world tell each other before they connect. Plain values and their texts, for
// MeshOptions::exchange. Internal to connect_mesh.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/descriptor_room.h"
#include "runtime/base/status.h"
#include "runtime/base/transport_choice.h"

namespace dlaunch {

/// The version, and a hash of the sources that fix what ranks say to each other and choose alike.
std::string own_build();

/// The first thing a rank says.
struct Introduction {
  std::string build = own_build();
  std::string address;   // of its TCP listener
  std::string host;      // equal for ranks that may share memory; empty: it does not
  std::string socket;    // where it awaits the others if it is to lead them; or
  std::string obstacle;  // why it does not share memory
  bool demands_sharing = false;
  int cores = 0;  // among how many ranks of its host each may keep one busy while it waits
  DescriptorRoom room;

  std::string encode() const;
  static Result<Introduction> decode(std::string_view text);
};

/// The second: what has come of the attempt to share memory.
struct SharingOutcome {
  bool joined = false;
  bool readable = false;  // the leader and it can read each other's memory
  bool pays = false;      // and that is quick
  std::string obstacle;   // why it has not joined

  std::string encode() const;
  static Result<SharingOutcome> decode(std::string_view text);
};

/// Equal for processes of one host between which memory and descriptors can be passed: they have
/// the same running kernel and the same network and process namespaces. kUnavailable if the system
/// does not tell.
Result<std::string> host_identity();

}  // namespace dlaunch
