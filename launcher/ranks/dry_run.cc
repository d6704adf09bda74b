#include "launcher/ranks/dry_run.h"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/base/number_list.h"
#include "launcher/ranks/binding.h"

namespace dlaunch {
namespace {

// As a shell would need it.
std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// What a start would set the variable to, as far as that is known before.
std::string value_of(const std::string& name, const std::string& value) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kUnknown{
      {{"DLAUNCH_STORE", "(the store's address)"},
       {"DLAUNCH_TOKEN", "(the job's secret)"},
       {"DLAUNCH_JOB_ID", "(made up)"},
       {"TORCHELASTIC_RUN_ID", "(the same as DLAUNCH_JOB_ID)"},
       {"MASTER_PORT", "(a free port)"}}};
  for (const auto& [unknown, what] : kUnknown) {
    if (name == unknown) return std::string(what);
  }
  return quoted(value);
}

std::string reader(const OutputOptions& output, int rank) {
  if (output.standard_input == OutputOptions::kEverybody) return "a copy of dlaunch's";
  return output.standard_input == rank ? "dlaunch's" : "/dev/null";
}

std::string changed_variables(const JobIdentity& job, int local_rank) {
  std::string text;
  for (const std::string& entry : rank_environment(job, local_rank, environ)) {
    const auto equals = entry.find('=');
    const std::string name = entry.substr(0, equals);
    const std::string value = entry.substr(equals + 1);
    const char* own = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    if (own != nullptr && own == value) continue;
    text += "    " + name + "=" + value_of(name, value) + "\n";
  }
  return text;
}

}  // namespace

std::string describe_job(const JobOptions& options, const JobIdentity& job,
                         const std::string& program) {
  const Shares shares = bind_ranks(options.placement.bind, job.ranks);
  std::string command = quoted(program);
  for (std::size_t i = 1; i < options.command.size(); ++i) {
    command += " " + quoted(options.command[i]);
  }
  std::string text;
  for (int local_rank = 0; local_rank < job.ranks; ++local_rank) {
    const int rank = job.first_rank + local_rank;
    const auto index = static_cast<std::size_t>(local_rank);
    text += "rank " + std::to_string(rank) + "\n  command: " + command + "\n";
    text += "  cores:   " +
            (shares.empty() ? "all that dlaunch may use" : format_number_list(shares[index])) +
            "\n";
    text += "  stdin:   " + reader(options.output, rank) + "\n";
    text += "  environment, beside dlaunch's own:\n" + changed_variables(job, local_rank);
  }
  return text;
}

}  // namespace dlaunch
