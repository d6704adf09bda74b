// store_bench: how fast the rendezvous store is, on loopback. docs/results/launcher.md has results.
//
//   pipelined   acknowledged sets of one client that has many under way
//   one by one  the same, each waiting for its answer
//   barrier     N clients connect, prove the token, add to a counter and wait for the last one
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <sys/resource.h>

#include <CLI/CLI.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tools/bench/measure/statistics.h"

namespace dlaunch {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::size_t operations = 500'000;
  std::size_t clients = 1000;
  int threads = 2;
  int repeats = 5;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {}

  void run() {
    report("pipelined", "operations/s", [this] { return pipelined(); });
    report("one by one", "operations/s", [this] { return one_by_one(); });
    report("barrier of " + std::to_string(options_.clients) + " clients", "s",
           [this] { return barrier(); });
  }

 private:
  template <typename Measure>
  void report(const std::string& name, const char* unit, const Measure& measure) {
    std::vector<double> values;
    values.reserve(static_cast<std::size_t>(options_.repeats));
    for (int i = 0; i < options_.repeats; ++i) values.push_back(measure());
    std::sort(values.begin(), values.end());
    std::printf("%-24s %12.4g %s (%.4g to %.4g)\n", name.c_str(), bench::quantile(values, 0.5),
                unit, values.front(), values.back());
  }

  std::unique_ptr<TcpStore> client() const {
    return TcpStore::connect(address_, token_, Deadline::after(std::chrono::seconds(30)))
        .value_or_throw();
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double pipelined() const {
    const auto store = client();
    StoreBatch batch;
    for (std::size_t i = 0; i < options_.operations; ++i) {
      batch.set("key/" + std::to_string(i % 1000), "a value of thirty-two bytes here");
    }
    const auto start = Clock::now();
    (void)store->run(batch, Deadline::after(std::chrono::seconds(60))).value_or_throw();
    return static_cast<double>(batch.size()) / seconds_since(start);
  }

  double one_by_one() const {
    const auto store = client();
    const std::size_t count = options_.operations / 20;
    const auto start = Clock::now();
    for (std::size_t i = 0; i < count; ++i) {
      throw_if_error(store->set("key/" + std::to_string(i % 1000), "a value"));
    }
    return static_cast<double>(count) / seconds_since(start);
  }

  double barrier() {
    const std::string name = "barrier " + std::to_string(++barriers_);
    const auto start = Clock::now();
    std::vector<std::future<void>> threads;
    threads.reserve(static_cast<std::size_t>(options_.threads));
    for (int t = 0; t < options_.threads; ++t) {
      threads.push_back(std::async(std::launch::async, [&, t] {
        std::vector<std::unique_ptr<TcpStore>> clients;
        for (auto i = static_cast<std::size_t>(t); i < options_.clients;
             i += static_cast<std::size_t>(options_.threads)) {
          clients.push_back(client());
          const auto arrived = clients.back()->add(name, 1).value_or_throw();
          if (arrived == static_cast<std::int64_t>(options_.clients)) {
            throw_if_error(clients.back()->set(name + " is complete", ""));
          }
        }
        for (const auto& each : clients) {
          throw_if_error(
              each->get(name + " is complete", Deadline::after(std::chrono::seconds(30))).status());
        }
      }));
    }
    for (auto& thread : threads) thread.get();
    return seconds_since(start);
  }

  const Options options_;
  const std::string token_ = make_token();
  const std::unique_ptr<StoreServer> server_ =
      StoreServer::start({.token = token_}).value_or_throw();
  const std::string address_ = "127.0.0.1:" + std::to_string(server_->port());
  int barriers_ = 0;
};

// The clients of the barrier and the server live in this one process.
void raise_descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  CLI::App app("Times the rendezvous store on loopback.", "store_bench");
  app.formatter(std::make_shared<dlaunch::OptionHelp>());
  dlaunch::Options options;
  app.add_option("--operations", options.operations, "Sets of one client; a twentieth one by one")
      ->check(CLI::Range(1000, 5'000'000))
      ->capture_default_str();
  app.add_option("--clients", options.clients, "That pass a barrier")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app.add_option("--threads", options.threads, "That the clients of the barrier share")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--repeats", options.repeats, "Of each measurement")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "store_bench: %s\n", dlaunch::refusal(app, error).c_str());
    return dlaunch::kExitUsage;
  }
  try {
    dlaunch::raise_descriptor_limit();
    dlaunch::Bench(options).run();
    return dlaunch::kExitOk;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_bench: %s\n", error.what());
    return dlaunch::kExitFailure;
  }
}
