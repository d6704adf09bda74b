// sequential_print --iterations K: the ranks of a job print their lines strictly in turn, K times.
//
// A token goes around the ring of ranks. Whoever holds it prints, hands its bytes to the system,
// and only then passes the token on; so the lines are in order wherever stdout leads.
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>

#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "runtime/base/run_rank.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {
namespace {

constexpr std::int64_t kMostIterations =
    1'000'000'000'000;  // CLI11 saturates numbers that overflow

void print_line(const char* line) {
  if (std::fputs(line, stdout) < 0 || std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "write to stdout");
  }
}

void take_turns(Communicator& world, std::int64_t iterations) {
  const int rank = world.rank();
  const int size = world.size();
  const std::string own_line = "Process " + std::to_string(rank) + "\n";
  std::array<std::uint8_t, 1> token{};
  for (std::int64_t i = 0; i < iterations; ++i) {
    const bool very_first = rank == 0 && i == 0;
    const bool very_last = rank == size - 1 && i == iterations - 1;
    if (size > 1 && !very_first) {
      throw_if_error(world.recv(token, (rank + size - 1) % size));
    }
    if (rank == 0 && i > 0) print_line("---\n");
    print_line(own_line.c_str());
    if (size > 1 && !very_last) throw_if_error(world.send(token, (rank + 1) % size));
  }
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  CLI::App app("Ranks print in turn: dlaunch --nproc N sequential_print --iterations K",
               "sequential_print");
  app.formatter(std::make_shared<dlaunch::OptionHelp>());
  std::int64_t iterations = 1;
  app.add_option("--iterations", iterations, "How many times every rank prints (default 1)")
      ->check(CLI::Range(std::int64_t{0}, dlaunch::kMostIterations))
      ->type_name("K");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "sequential_print: %s\n", dlaunch::refusal(app, error).c_str());
    return dlaunch::kExitUsage;
  }
  return dlaunch::run_rank("sequential_print", [&] {
    if (iterations > 0) dlaunch::take_turns(*dlaunch::connect_world().value_or_throw(), iterations);
    return dlaunch::kExitOk;
  });
}
