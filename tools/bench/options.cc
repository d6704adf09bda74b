#include "tools/bench/options.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string_view>

#include <CLI/CLI.hpp>

#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"
#include "tools/bench/size_option.h"

namespace dlaunch::bench {
namespace {

constexpr int kMostRanks = 1 << 22;

struct Command {
  const char* name;
  CollectiveKind kind;
  const char* help;
};

constexpr Command kCollectives[] = {
    {"allreduce", CollectiveKind::kAllReduce, "All-reduce in place"},
    {"broadcast", CollectiveKind::kBroadcast, "Broadcast from --root"},
    {"reduce", CollectiveKind::kReduce, "Reduce to --root"},
    {"allgather", CollectiveKind::kAllGather, "All-gather; the size is that of the result"},
    {"reducescatter", CollectiveKind::kReduceScatter,
     "Reduce-scatter; the size is that of the input"},
    {"alltoall", CollectiveKind::kAllToAll, "All-to-all with equal parts"},
    {"gather", CollectiveKind::kGather, "Gather to --root; the size is that of the result"},
    {"scatter", CollectiveKind::kScatter, "Scatter from --root; the size is that of the input"},
    {"barrier", CollectiveKind::kBarrier, "Barrier"},
};

std::string without_underscores(std::string_view text) {
  std::string result(text);
  std::erase(result, '_');
  return result;
}

// The value called `text` among `values`, or a ParseError that lists them.
template <typename Value>
Value value_called(const std::string& text, const std::string& option,
                   std::span<const Value> values) {
  std::vector<std::string> names;
  for (const Value value : values) {
    if (without_underscores(text) == without_underscores(to_string(value))) return value;
    names.emplace_back(to_string(value));
  }
  throw CLI::ValidationError(option, none_of(text, names));
}

template <typename Value>
CLI::Option* add_choice(CLI::App& app, const std::string& option, Value& into,
                        std::span<const Value> values, const std::string& help) {
  return app.add_option_function<std::string>(
      option,
      [&into, option, values](const std::string& text) {
        into = value_called(text, option, values);
      },
      help);
}

void add_sizes(CLI::App& app, Options& options, const char* counts_help) {
  add_size_option(app, "--min-bytes", options.min_bytes, "Smallest size (K, M, G, T allowed)")
      ->default_str("4");
  add_size_option(app, "--max-bytes", options.max_bytes, "Greatest size")->default_str("16M");
  app.add_option("--factor", options.factor, "From one size to the next")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--counts", options.counts, counts_help)
      ->check([](const std::string& text) {  // it would be taken for a large number
        return text.starts_with('-') ? "'" + text + "' is less than 0" : "";
      })
      ->delimiter(',');
}

void add_dtype(CLI::App& app, Options& options) {
  add_choice(app, "--dtype", options.dtype, std::span<const DType>(kAllDTypes),
             "Element type: f16, bf16, f32 (default), f64, i8, i32, i64, u8, u32, u64")
      ->type_name("TYPE");
}

void add_reduction(CLI::App& app, Options& options) {
  add_choice(app, "--op", options.op, std::span<const ReduceOp>(kAllReduceOps),
             "Reduction: sum (default), avg, min, max, prod; of integers band, bor, bxor")
      ->type_name("OPERATION");
  app.add_flag_callback(
      "--rank-order", [&options] { options.order = ReduceOrder::kRanks; },
      "Add in the order of ranks: the same bits with every algorithm and transport");
}

void add_launch(CLI::App& app, Options& options) {
  app.add_option("--nproc", options.nproc, "Ranks to start when not started by dlaunch")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

void add_transport(CLI::App& app, Options& options) {
  app.add_option("--transport", options.transport, "sets DLAUNCH_TRANSPORT")
      ->type_name("auto|shm|tcp")
      ->check([](const std::string& text) {
        return text == "auto" || text == "shm" || text == "tcp"
                   ? ""
                   : "'" + text + "' is none of auto, shm, tcp";
      });
}

void add_common(CLI::App& app, Options& options) {
  add_launch(app, options);
  add_transport(app, options);
  app.add_option("--seconds", options.limits.seconds, "Time for each line at most")
      ->type_name("SECONDS")
      ->check(number_range(1e-3, 1e6))
      ->capture_default_str();
  app.add_option_function<int>(
         "--iterations",
         [&options](int iterations) { options.limits.least = options.limits.most = iterations; },
         "Exactly so many repetitions, instead of as many as the median needs")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--warmup", options.limits.warmup, "Repetitions that do not count")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--json", options.json_path, "Write the results to this file too")
      ->type_name("FILE");
}

void add_collective(CLI::App& app, const Command& command, Options& options) {
  CLI::App* sub = app.add_subcommand(command.name, command.help);
  sub->callback([&options, kind = command.kind] {
    options.subject = Subject::kCollective;
    options.kind = kind;
  });
  add_common(*sub, options);
  const CollectiveKind kind = command.kind;
  if (kind == CollectiveKind::kBarrier) return;
  add_sizes(*sub, options, "Sizes in elements instead: 1000,10000");
  add_dtype(*sub, options);
  sub->add_flag("--allocated", options.allocated, "Buffers from Communicator::allocate");
  sub->add_flag("--verify", options.verify, "Check every element of every repetition");
  if (reduces(kind)) add_reduction(*sub, options);
  if (kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
      kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter) {
    sub->add_option("--root", options.root, "The root's rank")
        ->check(CLI::Range(0, kMostRanks - 1))
        ->capture_default_str();
  }
  sub->add_option_function<std::vector<std::string>>(
         "--algorithm",
         [&options](const std::vector<std::string>& names) {
           std::vector<Algorithm> known = {Algorithm::kAuto};
           known.insert(known.end(), std::begin(kAllAlgorithms), std::end(kAllAlgorithms));
           options.algorithms.clear();
           for (const auto& name : names) {
             options.algorithms.push_back(
                 value_called(name, "--algorithm", std::span<const Algorithm>(known)));
           }
         },
         "One or several: ring,butterfly (default auto)")
      ->type_name("NAME")
      ->delimiter(',');
}

void add_pair(CLI::App& app, Options& options) {
  CLI::App* sub = app.add_subcommand(
      "p2p", "Round trips and streams between two ranks, with sockets and bare memory beside them");
  sub->callback([&options] {
    options.subject = Subject::kPointToPoint;
    options.dtype = DType::kU8;
  });
  add_common(*sub, options);
  add_sizes(*sub, options, "These sizes instead: 1000,10000");
  sub->add_flag("--references", options.only_references, "Only sockets and memory");
}

void add_machine(CLI::App& app, Options& options) {
  CLI::App* sub = app.add_subcommand(
      "machine", "Peak rates of the cores, all ranks at the same time: multiply, read, copy");
  sub->callback([&options] { options.subject = Subject::kMachine; });
  add_common(*sub, options);
  add_size_option(
      *sub, "--bytes", options.bytes,
      "That a rank reads or copies (K, M, G, T allowed; default: several caches' worth)");
}

void add_explain(CLI::App& app, Options& options) {
  CLI::App* sub = app.add_subcommand(
      "explain", "Which algorithm is chosen, what the cost model predicts, and of what terms");
  sub->callback([&options] { options.subject = Subject::kExplain; });
  add_choice(*sub, "collective", options.kind, std::span<const CollectiveKind>(kAllCollectiveKinds),
             "all_reduce, broadcast, ...")
      ->required();
  add_size_option(*sub, "--bytes", options.bytes, "Of the whole vector (K, M, G, T allowed)")
      ->required();
  sub->add_option("--hosts", options.hosts, "Of the job")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  sub->add_option("--ranks-per-host,--ranks", options.ranks_per_host, "On each of them")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  sub->add_option("--cores", options.cores, "Of a host (default: of this one)")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--model", options.model_path,
                  "A file that dbench tune wrote (default: DLAUNCH_COST_MODEL)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  add_transport(*sub, options);
  add_dtype(*sub, options);
  add_reduction(*sub, options);
}

void add_tune(CLI::App& app, Options& options) {
  CLI::App* sub = app.add_subcommand(
      "tune", "Measures the cost model of this machine; run it again with --transport tcp");
  sub->callback([&options] {
    options.subject = Subject::kTune;
    // Forced, so that what is measured is what the terms are called.
    if (options.transport.empty() || options.transport == "auto") options.transport = "shm";
  });
  add_launch(*sub, options);
  add_transport(*sub, options);
  sub->add_option("--seconds", options.limits.seconds, "Time for each term at most")
      ->type_name("SECONDS")
      ->check(number_range(1e-3, 1e6))
      ->capture_default_str();
  sub->add_option("--model", options.model_path, "The file to write; other terms in it are kept")
      ->type_name("FILE");
}

// These are dbench_training's (relaunch.h); here they are named in the help only.
void add_training(CLI::App& app) {
  app.add_subcommand("train", "Training steps of a configuration: dbench train --help");
  app.add_subcommand("syncbn", "SyncBatchNorm forward and backward: dbench syncbn --help");
  app.add_subcommand("device", "What a CPU or GPU does at best: dbench device --help");
}

}  // namespace

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

std::vector<std::size_t> Options::sweep() const {
  if (!counts.empty()) return counts;
  if (kind == CollectiveKind::kBarrier && subject == Subject::kCollective) return {0};
  std::vector<std::size_t> result;
  for (std::size_t bytes = std::max(min_bytes, size_of(dtype)); bytes <= max_bytes;
       bytes *= factor) {
    result.push_back(bytes / size_of(dtype));
    if (bytes > max_bytes / factor) break;  // before it overflows
  }
  return result;
}

Options parse_command_line(int argc, char** argv, std::string& help) {
  Options options;
  options.limits.seconds = 0.5;
  options.cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  CLI::App app(
      "Times collectives and point-to-point messages. Run it under dlaunch, or alone: then "
      "it starts --nproc ranks itself.");
  app.name("dbench");
  app.formatter(std::make_shared<OptionHelp>());
  app.require_subcommand(1);
  app.ignore_underscore();
  for (const Command& command : kCollectives) add_collective(app, command, options);
  add_pair(app, options);
  add_machine(app, options);
  add_explain(app, options);
  add_tune(app, options);
  add_training(app);
  app.set_version_flag("--version", "dbench " DLAUNCH_VERSION, "Show the version and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForVersion& version) {
    help = std::string(version.what()) + "\n";
    throw;
  } catch (const CLI::Success&) {
    help = app.help();
    throw;
  } catch (const CLI::ParseError& error) {
    throw CLI::ValidationError(refusal(app, error));
  }
  if (options.counts.empty() && options.sweep().empty()) {
    throw CLI::ValidationError("--min-bytes", "is greater than --max-bytes");
  }
  if (!has_reduction(options.dtype, options.op)) {
    throw CLI::ValidationError("--op", std::string(to_string(options.op)) +
                                           " is of integers, and --dtype is " +
                                           std::string(to_string(options.dtype)));
  }
  if (options.hosts > kMostRanks / options.ranks_per_host) {
    throw CLI::ValidationError(
        "--hosts", std::to_string(options.hosts) + " of " + std::to_string(options.ranks_per_host) +
                       " ranks are more than " + std::to_string(kMostRanks) + " ranks");
  }
  return options;
}

}  // namespace dlaunch::bench
