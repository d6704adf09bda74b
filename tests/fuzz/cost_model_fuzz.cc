// Files of cost models (DLAUNCH_COST_MODEL): each is either read or refused with a ConfigError, and
// what was read reads the same again when it is written, as ranks do for each other.
#include "runtime/collective/cost_model.h"

#include "runtime/base/json_reader.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {

std::vector<std::string> seed_inputs() {
  return {
      to_json(CostModel{}), "{}",
      R"({"shared_memory": {"sync_us": 0.2, "turn_us": 1e6}, "memory": {"copy_gb_per_s": 1e-9}})",
      R"({"tcp": {"latency_us": 30, "overhead_us": 0, "gb_per_s": 12345.678}})"};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch;  // NOLINT(google-build-using-namespace)
  try {
    const std::string written =
        to_json(parse_cost_model({reinterpret_cast<const char*>(data), size}, "model.json"));
    fuzz::require(to_json(parse_cost_model(written, "written")) == written, "it reads as itself");
  } catch (const ConfigError& refused) {
    fuzz::require(*refused.what() != '\0', "a refusal has a reason");
  }
  return 0;
}
