// What ranks tell each other through the store before they connect.
#include "transport/mesh/introduction.h"

#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {
namespace {

template <typename Value>
void read(std::string_view text) {
  const auto value = Value::decode(text);
  if (!value.ok()) {
    require(value.status().code() == StatusCode::kProtocol, "what is not understood is said so");
    return;
  }
  const std::string once = value->encode();
  const auto again = Value::decode(once);
  require(again.ok() && again->encode() == once, "what is said again is the same");
}

}  // namespace

std::vector<std::string> seed_inputs() {
  return {Introduction{.address = "10.0.0.1:99", .host = "h 1 2", .socket = "00a1", .obstacle = ""}
              .encode(),
          Introduction{.address = "[::1]:99", .obstacle = "none", .demands_sharing = true}.encode(),
          SharingOutcome{.joined = true, .readable = true, .pays = true, .obstacle = ""}.encode(),
          SharingOutcome{.obstacle = "no memory"}.encode()};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  dlaunch::fuzz::read<dlaunch::Introduction>(text);
  dlaunch::fuzz::read<dlaunch::SharingOutcome>(text);
  return 0;
}
