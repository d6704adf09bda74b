#include "launcher/options/output_options.h"

#include "launcher/base/number_list.h"
#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {
namespace {

constexpr int kHighestRank = 1 << 20;

OutputOptions::Mode parse_mode(const std::string& text) {
  if (text == "plain") return OutputOptions::Mode::kPlain;
  if (text == "prefix") return OutputOptions::Mode::kPrefix;
  throw BadValue("'" + text + "' is neither plain nor prefix");
}

std::vector<int> parse_ranks_shown(const std::string& text) {
  auto ranks = parse_number_list(text, kHighestRank);
  if (!ranks) throw BadValue("'" + text + "' is not a list of ranks such as 0,2,4-7");
  return *std::move(ranks);
}

int parse_reader(const std::string& text) {
  if (text == "none") return OutputOptions::kNobody;
  if (text == "all") return OutputOptions::kEverybody;
  const auto rank = parse_integer(text, 0, kHighestRank);
  if (!rank) throw BadValue("'" + text + "' is not a rank, 'none' or 'all'");
  return *rank;
}

}  // namespace

std::string unknown_rank(const OutputOptions& options, int world) {
  const auto refuse = [&](const char* option, int rank) {
    return std::string(option) + ": there is no rank " + std::to_string(rank) + " in a job of " +
           std::to_string(world) + " (they count from 0)";
  };
  if (options.only && options.only->back() >= world) return refuse("--only", options.only->back());
  if (options.standard_input >= world) return refuse("--stdin", options.standard_input);
  return "";
}

void add_output_options(CLI::App& app, OutputOptions& options) {
  const OptionGroup group(app, "Output");
  group.add("--output", "plain|prefix", "stdout untouched (default), or with [rank N] in front",
            [&](const std::string& text) { options.mode = parse_mode(text); });
  group.add("--log-dir", "DIR", "Keep DIR/attempt-K/rank-N/stdout and stderr",
            [&](const std::string& text) { options.log_dir = parse_text(text, "folder"); });
  group.add("--only", "RANKS", "Show only these ranks (0,2,4-7), and one that fails",
            [&](const std::string& text) { options.only = parse_ranks_shown(text); });
  group.add("--stdin", "RANK|none|all", "Who reads stdin (default: rank 0)",
            [&](const std::string& text) { options.standard_input = parse_reader(text); });
}

}  // namespace dlaunch
