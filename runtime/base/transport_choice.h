// TransportChoice: what DLAUNCH_TRANSPORT says about how ranks reach each other.
#pragma once

#include <optional>
#include <string_view>

namespace dlaunch {

enum class TransportChoice {
  kAuto,          // shared memory where two ranks can share it, TCP elsewhere
  kTcp,           // TCP only
  kSharedMemory,  // shared memory only: an error where two ranks cannot
};

/// "auto" (or nothing), "tcp", "shm".
inline std::optional<TransportChoice> parse_transport_choice(std::string_view text) {
  if (text.empty() || text == "auto") return TransportChoice::kAuto;
  if (text == "tcp") return TransportChoice::kTcp;
  if (text == "shm") return TransportChoice::kSharedMemory;
  return std::nullopt;
}

}  // namespace dlaunch
